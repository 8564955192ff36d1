"""All that belongs to a resource: deleted, exported, imported; `memory.users`."""

from langchain_workingmem.users.api import Users
from langchain_workingmem.users.format import UNREADABLE, header

__all__ = ["UNREADABLE", "Users", "header"]
