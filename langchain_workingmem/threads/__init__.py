"""Threads: who owns a conversation, its title and metadata, its clones; `memory.threads`."""

from langchain_workingmem.threads.api import Threads
from langchain_workingmem.threads.copies import MOST_CHUNKS, Saver, Writer
from langchain_workingmem.threads.operations import (
    CURSOR,
    all_threads,
    find_threads,
    get_existing_thread,
    get_thread,
    list_threads,
    read_thread,
    thread_fields,
    transfer,
)

__all__ = [
    "CURSOR",
    "MOST_CHUNKS",
    "Saver",
    "Threads",
    "Writer",
    "all_threads",
    "find_threads",
    "get_existing_thread",
    "get_thread",
    "list_threads",
    "read_thread",
    "thread_fields",
    "transfer",
]
