"""Files of a user, a team or an agent: one tree each, whose edits are never lost."""

from langchain_workingmem.files.api import Files
from langchain_workingmem.files.operations import Tree, check_by, edit, find, grep
from langchain_workingmem.files.paths import Pattern, check_directory
from langchain_workingmem.files.records import File, FileEdit, FileInfo, FileRevision, FileUsage, LineMatch

__all__ = [
    "File",
    "FileEdit",
    "FileInfo",
    "FileRevision",
    "FileUsage",
    "Files",
    "LineMatch",
    "Pattern",
    "Tree",
    "check_by",
    "check_directory",
    "edit",
    "find",
    "grep",
]
