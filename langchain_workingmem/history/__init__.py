"""Message history: every message of a thread, whole and in order; `memory.history`."""

from langchain_workingmem.history.api import History
from langchain_workingmem.history.branch import Branch, Kind
from langchain_workingmem.history.media import media_begin, with_names
from langchain_workingmem.history.operations import refuse_messages, save_messages, write_messages
from langchain_workingmem.history.provider_valid import fit, history_slice, is_sliced, provider_valid, with_calls
from langchain_workingmem.history.references import media_of, result_with_media, with_media
from langchain_workingmem.history.refusals import is_overflow, is_refusal
from langchain_workingmem.history.rows import READ, MessageSelection, read_rows

__all__ = [
    "READ",
    "Branch",
    "History",
    "Kind",
    "MessageSelection",
    "fit",
    "history_slice",
    "is_overflow",
    "is_refusal",
    "is_sliced",
    "media_begin",
    "media_of",
    "provider_valid",
    "read_rows",
    "refuse_messages",
    "result_with_media",
    "save_messages",
    "with_calls",
    "with_media",
    "with_names",
    "write_messages",
]
