"""Files of a user, a team or an agent: one tree each, whose edits are never lost."""

from langchain_workingmem.files.api import Files
from langchain_workingmem.files.records import File, FileEdit, FileInfo, FileRevision, FileUsage, LineMatch

__all__ = ["File", "FileEdit", "FileInfo", "FileRevision", "FileUsage", "Files", "LineMatch"]
