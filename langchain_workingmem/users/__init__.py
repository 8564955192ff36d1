"""All data of a resource: delete, export, import; `memory.users`."""

from langchain_workingmem.users import sections
from langchain_workingmem.users.api import Users, deletion
from langchain_workingmem.users.sections import END, KINDS, UNREADABLE, header, paths_of

__all__ = ["END", "KINDS", "UNREADABLE", "Users", "deletion", "header", "paths_of", "sections"]
