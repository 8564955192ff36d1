"""All data of a user: delete, merge, export, import; `memory.users`."""

from langchain_workingmem.users.api import Users

__all__ = ["Users"]
