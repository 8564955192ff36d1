"""Threads: who owns a conversation, its title and metadata, its clones; `memory.threads`."""

from langchain_workingmem.threads.api import Threads
from langchain_workingmem.threads.backfill import Saver
from langchain_workingmem.threads.operations import (
    CURSOR,
    all_threads,
    find_threads,
    get_existing_thread,
    get_thread,
    in_pairs,
    list_threads,
    read_thread,
    search_threads,
    thread_fields,
    transfer,
)
from langchain_workingmem.threads.restoring import MOST_CHUNKS, Row, Writer

__all__ = [
    "CURSOR",
    "MOST_CHUNKS",
    "Row",
    "Saver",
    "Threads",
    "Writer",
    "all_threads",
    "find_threads",
    "get_existing_thread",
    "get_thread",
    "in_pairs",
    "list_threads",
    "read_thread",
    "search_threads",
    "thread_fields",
    "transfer",
]
