"""Threads: who owns a conversation, its title and metadata, its clones; `memory.threads`."""

from langchain_workingmem.threads.api import Threads
from langchain_workingmem.threads.clones import as_restored, forgotten_commands, gaps_in, header_of, restore_messages
from langchain_workingmem.threads.operations import (
    CURSOR,
    all_threads,
    find_threads,
    get_thread,
    list_threads,
    read_thread,
    search_threads,
    thread_fields,
    transfer,
)

__all__ = [
    "CURSOR",
    "Threads",
    "all_threads",
    "as_restored",
    "find_threads",
    "forgotten_commands",
    "gaps_in",
    "get_thread",
    "header_of",
    "list_threads",
    "read_thread",
    "restore_messages",
    "search_threads",
    "thread_fields",
    "transfer",
]
