"""Memory for LangChain and LangGraph agents on Redis: message history, semantic recall, working memory.

Every name is imported at its first use: `import langchain_workingmem` is fast, and an extra is needed only for what
uses it. Further errors, records and options are imported from their modules, such as `langchain_workingmem.errors`.
"""

# ruff: noqa: F403, F405 - `__all__` names what users import of these modules
from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_workingmem.embeddings import LocalEmbeddings, MultilingualEmbeddings
    from langchain_workingmem.errors import *
    from langchain_workingmem.faces.runnables import RedisChatMessageHistory, SemanticRecallRetriever
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.middleware import MemoryMiddleware
    from langchain_workingmem.models import *
    from langchain_workingmem.observations import ObservationOptions
    from langchain_workingmem.options import *
    from langchain_workingmem.store import RedisMemoryStore
    from langchain_workingmem.turn.assemble import collect_contexts

__version__ = "0.1.0"

__all__ = [
    "ClonedThread",
    "DeletionReport",
    "EmbeddingError",
    "EmbeddingSizeError",
    "FileConflictError",
    "FileOptions",
    "HistoryOptions",
    "HybridWeights",
    "IdError",
    "Ids",
    "IndexOptions",
    "LocalEmbeddings",
    "Memory",
    "MemoryContext",
    "MemoryMiddleware",
    "MessageNotFoundError",
    "ModelError",
    "MultilingualEmbeddings",
    "ObservationOptions",
    "OptionError",
    "Page",
    "PerCall",
    "ReadOnlyError",
    "RecallHit",
    "RecallOptions",
    "RecallResult",
    "RedisCapabilityError",
    "RedisChatMessageHistory",
    "RedisConnectionError",
    "RedisMemoryStore",
    "SemanticRecallRetriever",
    "StoredMessage",
    "Thread",
    "ThreadExistsError",
    "ThreadIds",
    "ThreadNotFoundError",
    "ThreadOwnershipError",
    "TitleOptions",
    "UserDeletedError",
    "WorkingMemError",
    "WorkingMemoryConflictError",
    "WorkingMemoryOptions",
    "WorkingMemoryState",
    "WorkingMemoryValidationError",
    "collect_contexts",
]

_MODULES = {
    "HybridWeights": "options",
    "Ids": "options",
    "LocalEmbeddings": "embeddings",
    "MultilingualEmbeddings": "embeddings",
    "Memory": "memory",
    "MemoryMiddleware": "middleware",
    "ObservationOptions": "observations",
    "PerCall": "options",
    "RedisChatMessageHistory": "faces.runnables",
    "RedisMemoryStore": "store",
    "SemanticRecallRetriever": "faces.runnables",
    "ThreadIds": "options",
    "collect_contexts": "turn.assemble",
}


if not TYPE_CHECKING:  # else a name that does not exist would pass type checks
    try:
        _agents = find_spec("langchain")
    except (ImportError, ValueError):  # something keeps it from being imported
        _agents = None
    if _agents is None:  # `import *` needs no extra; the name itself says which one it needs
        __all__.remove("MemoryMiddleware")  # noqa: PYI056

    def __getattr__(name: str) -> Any:
        if name not in __all__ and name not in _MODULES:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        home = "errors" if name.endswith("Error") else "options" if name.endswith("Options") else "models"
        value = getattr(import_module(f"{__name__}.{_MODULES.get(name, home)}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
