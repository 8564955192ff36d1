"""Memory for LangChain and LangGraph agents on Redis: message history, semantic recall, working memory.

Every name is imported at its first use: `import langchain_workingmem` is fast, and an extra is needed only for what uses it.
"""

# ruff: noqa: F403, F405 - `__all__` names what users import of these modules
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_workingmem.embeddings import LocalEmbeddings
    from langchain_workingmem.embeddings import MultilingualEmbeddings as MultilingualEmbeddings
    from langchain_workingmem.errors import *
    from langchain_workingmem.faces.chat_history import RedisChatMessageHistory as RedisChatMessageHistory
    from langchain_workingmem.faces.middleware import MemoryMiddleware as MemoryMiddleware
    from langchain_workingmem.faces.per_call import PerCall as PerCall
    from langchain_workingmem.faces.retriever import SemanticRecallRetriever as SemanticRecallRetriever
    from langchain_workingmem.faces.store import RedisMemoryStore as RedisMemoryStore
    from langchain_workingmem.files import File, FileEdit, FileInfo, FileRevision, FileUsage, LineMatch
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import *
    from langchain_workingmem.observations import Observation, ObservationLog, ObservationOptions
    from langchain_workingmem.options import *
    from langchain_workingmem.reports import *
    from langchain_workingmem.turn import collect_contexts
    from langchain_workingmem.usage import ContextUsage, UserUsage

__version__ = "0.1.0"

__all__ = [
    "BackfillReport",
    "ClonedThread",
    "ContextUsage",
    "DeletionReport",
    "Diagnosis",
    "EmbeddingError",
    "EmbeddingSizeError",
    "File",
    "FileConflictError",
    "FileEdit",
    "FileEditError",
    "FileInfo",
    "FileMissingError",
    "FileOptions",
    "FilePathError",
    "FileQuotaError",
    "FileRevision",
    "FileUsage",
    "Finding",
    "HistoryOptions",
    "HybridWeights",
    "IdError",
    "Ids",
    "ImportReport",
    "IndexOptions",
    "KeeperReport",
    "LineMatch",
    "LocalEmbeddings",
    "Memory",
    "MemoryContext",
    "MergeReport",
    "MessageNotFoundError",
    "ModelError",
    "Observation",
    "ObservationLog",
    "ObservationNotFoundError",
    "ObservationOptions",
    "OptionError",
    "OutcomeUnknownError",
    "Page",
    "ReadOnlyError",
    "RecallHit",
    "RecallOptions",
    "RecallResult",
    "RedisCapabilityError",
    "RedisConnectionError",
    "RedisReplyError",
    "RerankerError",
    "RevisionNotFoundError",
    "StoredMessage",
    "Thread",
    "ThreadExistsError",
    "ThreadIds",
    "ThreadNotFoundError",
    "ThreadOwnershipError",
    "TitleOptions",
    "UserDeletedError",
    "UserPage",
    "UserSummary",
    "UserUsage",
    "WorkingMemError",
    "WorkingMemoryConflictError",
    "WorkingMemoryOptions",
    "WorkingMemoryState",
    "WorkingMemoryValidationError",
    "WorkingMemoryValue",
    "collect_contexts",
]

_MODULES = {
    **dict.fromkeys(
        (
            "BackfillReport",
            "DeletionReport",
            "Diagnosis",
            "Finding",
            "ImportReport",
            "KeeperReport",
            "MergeReport",
            "UserPage",
            "UserSummary",
        ),
        "reports",
    ),
    **dict.fromkeys(("File", "FileEdit", "FileInfo", "FileRevision", "FileUsage", "LineMatch"), "files"),
    **dict.fromkeys(("HybridWeights", "Ids", "ThreadIds"), "options"),
    **dict.fromkeys(("Observation", "ObservationLog", "ObservationOptions"), "observations"),
    **dict.fromkeys(("LocalEmbeddings", "MultilingualEmbeddings"), "embeddings"),
    "MemoryMiddleware": "faces.middleware",
    "PerCall": "faces.per_call",
    "RedisChatMessageHistory": "faces.chat_history",
    "RedisMemoryStore": "faces.store",
    "SemanticRecallRetriever": "faces.retriever",
    "Memory": "memory",
    **dict.fromkeys(("ContextUsage", "UserUsage"), "usage"),
    "collect_contexts": "turn",
}


def _module_of(name: str) -> str:
    if name.endswith("Error"):
        return "errors"
    return _MODULES.get(name) or ("options" if name.endswith("Options") else "models")


if not TYPE_CHECKING:  # else a name that does not exist would pass type checks

    def __getattr__(name: str) -> Any:
        if (
            name not in __all__ and name not in _MODULES
        ):  # `import *` needs no extra, so some names are not in `__all__`
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = getattr(import_module(f"{__name__}.{_module_of(name)}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
