"""TODO."""

from langchain_workingmem.users.api import Users

__all__ = ["Users"]
