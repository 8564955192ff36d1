"""The documented path of `RedisMemoryStore`, which lies in `faces`."""

from langchain_workingmem.faces.store import RedisMemoryStore

__all__ = ["RedisMemoryStore"]
