"""Message history: every message of a thread, whole and in order; `memory.history`."""

from langchain_workingmem.history.api import History
from langchain_workingmem.history.follow import AS_STORED, Entry, Followed, Kind, Known, follow
from langchain_workingmem.history.read import (
    PageOfThread,
    made,
    page_command,
    read_page,
    readable,
    selection,
    with_media,
)
from langchain_workingmem.history.save import append, heal, known_in, list_head, save_turn, write

__all__ = [
    "AS_STORED",
    "Entry",
    "Followed",
    "History",
    "Kind",
    "Known",
    "PageOfThread",
    "append",
    "follow",
    "heal",
    "known_in",
    "list_head",
    "made",
    "page_command",
    "read_page",
    "readable",
    "save_turn",
    "selection",
    "with_media",
    "write",
]
