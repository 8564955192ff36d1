"""Threads: who owns a conversation, its title and metadata, its clones; `memory.threads`."""

from langchain_workingmem.threads.api import Threads
from langchain_workingmem.threads.copies import Older, Saver, name_thread, write_older
from langchain_workingmem.threads.operations import (
    CURSOR,
    all_threads,
    find_threads,
    get_existing_thread,
    get_thread,
    read_thread,
    thread_fields,
    transfer,
)

__all__ = [
    "CURSOR",
    "Older",
    "Saver",
    "Threads",
    "all_threads",
    "find_threads",
    "get_existing_thread",
    "get_thread",
    "name_thread",
    "read_thread",
    "thread_fields",
    "transfer",
    "write_older",
]
