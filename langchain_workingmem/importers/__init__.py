"""Convert threads of other programs into records for `Memory.users.load`."""

from langchain_workingmem.importers.logs import from_chatgpt, from_langchain, from_openai
from langchain_workingmem.users.archive import header

__all__ = ["from_chatgpt", "from_langchain", "from_openai", "header"]
