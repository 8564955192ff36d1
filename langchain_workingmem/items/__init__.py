"""The items of a LangGraph store: reads, writes and searches for `RedisMemoryStore`."""

from langchain_workingmem.items.operations import StoreState, Vectors, millis, run_operations

__all__ = ["StoreState", "Vectors", "millis", "run_operations"]
