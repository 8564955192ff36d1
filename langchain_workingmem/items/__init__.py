"""The items of a LangGraph store: reads, writes and searches for `RedisMemoryStore`."""

from langchain_workingmem.items.operations import millis, run_operations
from langchain_workingmem.items.state import StoreState, Vectors

__all__ = ["StoreState", "Vectors", "millis", "run_operations"]
