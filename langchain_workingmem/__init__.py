"""Memory for LangChain and LangGraph agents on Redis: message history, semantic recall, and the turn of an agent.

Every name is imported when it is first used, so that `import langchain_workingmem` costs next to nothing and an
extra is needed only by who uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_workingmem.embeddings import LocalEmbeddings
    from langchain_workingmem.errors import (
        EmbeddingError,
        EmbeddingSizeError,
        IdError,
        MessageNotFoundError,
        OptionError,
        RedisCapabilityError,
        RedisConnectionError,
        RedisReplyError,
        ThreadExistsError,
        ThreadNotFoundError,
        ThreadOwnershipError,
        WorkingMemError,
    )
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import (
        ClonedThread,
        MemoryContext,
        Page,
        RecallHit,
        RecallResult,
        StoredMessage,
        Thread,
    )
    from langchain_workingmem.options import HistoryOptions, IndexOptions, RecallOptions

__all__ = [
    "ClonedThread",
    "EmbeddingError",
    "EmbeddingSizeError",
    "HistoryOptions",
    "IdError",
    "IndexOptions",
    "LocalEmbeddings",
    "Memory",
    "MemoryContext",
    "MessageNotFoundError",
    "OptionError",
    "Page",
    "RecallHit",
    "RecallOptions",
    "RecallResult",
    "RedisCapabilityError",
    "RedisConnectionError",
    "RedisReplyError",
    "StoredMessage",
    "Thread",
    "ThreadExistsError",
    "ThreadNotFoundError",
    "ThreadOwnershipError",
    "WorkingMemError",
]

_HOMES = {
    "LocalEmbeddings": "embeddings",
    "Memory": "memory",
    **dict.fromkeys(("HistoryOptions", "IndexOptions", "RecallOptions"), "options"),
    **dict.fromkeys(
        ("ClonedThread", "MemoryContext", "Page", "RecallHit", "RecallResult", "StoredMessage", "Thread"),
        "models",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
