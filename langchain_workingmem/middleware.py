"""The documented path of `MemoryMiddleware`, which lies in `faces`."""

from langchain_workingmem.faces.middleware import MemoryMiddleware

__all__ = ["MemoryMiddleware"]
