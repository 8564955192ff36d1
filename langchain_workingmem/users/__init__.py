"""All data of a resource: delete, export, import; `memory.users`."""

from langchain_workingmem.users.api import Users
from langchain_workingmem.users.format import KINDS, UNREADABLE, header, paths_of

__all__ = ["KINDS", "UNREADABLE", "Users", "header", "paths_of"]
