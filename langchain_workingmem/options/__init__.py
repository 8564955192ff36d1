"""The options of a memory: frozen dataclasses, checked when they are made."""

from langchain_workingmem.options.background import TitleOptions
from langchain_workingmem.options.base import (
    CONNECT_TIMEOUT,
    EMBEDDING_TIMEOUT,
    TIMEOUT,
    Ids,
    NumberType,
    OnError,
    Placement,
    Scope,
    ThreadIds,
    TimeZone,
    TokenCounter,
)
from langchain_workingmem.options.files import FileOptions
from langchain_workingmem.options.history import HistoryOptions
from langchain_workingmem.options.recall import (
    MOST_HITS,
    ContextArguments,
    HybridWeights,
    IndexOptions,
    RecallArguments,
    RecallOptions,
    thread_filter_keys,
)
from langchain_workingmem.options.working_memory import WorkingMemoryOptions

__all__ = [
    "CONNECT_TIMEOUT",
    "EMBEDDING_TIMEOUT",
    "MOST_HITS",
    "TIMEOUT",
    "ContextArguments",
    "FileOptions",
    "HistoryOptions",
    "HybridWeights",
    "Ids",
    "IndexOptions",
    "NumberType",
    "OnError",
    "Placement",
    "RecallArguments",
    "RecallOptions",
    "Scope",
    "ThreadIds",
    "TimeZone",
    "TitleOptions",
    "TokenCounter",
    "WorkingMemoryOptions",
    "thread_filter_keys",
]
