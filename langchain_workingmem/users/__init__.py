"""All data of a resource: delete, export, import; `memory.users`."""

from langchain_workingmem.users.api import Users
from langchain_workingmem.users.format import UNREADABLE, header, paths_of
from langchain_workingmem.users.records import KINDS

__all__ = ["KINDS", "UNREADABLE", "Users", "header", "paths_of"]
