"""All data of a user: delete, merge, export, import; `memory.users`.

The format of archives, `sections`, is loaded by who reads or writes one: `from langchain_workingmem.users import
sections`.
"""

from langchain_workingmem.users.api import Users

__all__ = ["Users"]
