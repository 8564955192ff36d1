"""The items of a LangGraph store: reads, writes and searches for `RedisMemoryStore`."""

from langchain_workingmem.items.operations import fields_of, millis, run_operations
from langchain_workingmem.items.state import DELETE_ITEM, PUT_ITEM, StoreState, item_digest, parts_of, read_items
from langchain_workingmem.items.together import together

__all__ = [
    "DELETE_ITEM",
    "PUT_ITEM",
    "StoreState",
    "fields_of",
    "item_digest",
    "millis",
    "parts_of",
    "read_items",
    "run_operations",
    "together",
]
