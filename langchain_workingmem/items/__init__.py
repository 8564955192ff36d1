"""The items of a LangGraph store: reads, writes and searches for `RedisMemoryStore`."""

from langchain_workingmem.items.operations import millis, run_operations
from langchain_workingmem.items.state import StoreState
from langchain_workingmem.items.together import together

__all__ = ["StoreState", "millis", "run_operations", "together"]
