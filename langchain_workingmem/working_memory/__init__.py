"""TODO."""

from langchain_workingmem.working_memory.api import WorkingMemory

__all__ = ["WorkingMemory"]
