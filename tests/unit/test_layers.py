"""The shape of the package: who may import whom, which names are public, and that twins are twins."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import langchain_workingmem
from langchain_workingmem.memory import Memory
from langchain_workingmem.parts.history import History
from langchain_workingmem.parts.recall import Recall
from langchain_workingmem.parts.resources import Resources
from langchain_workingmem.parts.threads import Threads
from langchain_workingmem.parts.working_memory import WorkingMemory

PARTS = [Memory, Resources, Threads, History, Recall, WorkingMemory]
PACKAGE = Path(langchain_workingmem.__file__).parent
NAME = "langchain_workingmem"
# A module may import from its own layer's package and from the layers above it in this list.
LAYERS = ["errors", "text", "options", "display", "models", "plans", "io", "parts", "faces", "memory"]
LAZY = {"faces", "memory"}  # reach the faces when a user asks for one
FACES = {
    *{"chat_history", "chat_models", "cli", "embedded", "embeddings", "ids", "importers"},
    *{"middleware", "nodes", "percall", "retriever", "store", "tools"},
}
# they make something for other modules to run
NO_IO = {"assembled", "gathering", "tools", "load_node", "save_node", "as_retriever", "chat_history"}
ONLY = {  # outside packages that a single layer may import
    "redis": {"io"},
    "asyncio": {"io"},
    "time": {"io"},
    "uuid": {"memory"},
    "random": {"io"},
    "langchain": {"middleware", "chat_models"},
    "langchain_openai": {"embeddings", "chat_models"},
    "rich": {"cli", "display"},
    "typer": {"cli"},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> list[tuple[str, bool]]:
    """Return what a module imports, and whether at its top level."""
    tree = ast.parse(path.read_text())
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
            if node.module == NAME:
                names = [f"{NAME}.{alias.name}" for alias in node.names]
        found += [(name, getattr(node, "col_offset", 0) == 0) for name in names]
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_from_lower_layers(path: Path) -> None:
    relative = path.relative_to(PACKAGE).with_suffix("")
    own = relative.parts[0]
    if own in {"__init__", *FACES}:
        return
    for name, top_level in imports(path):
        if not name.startswith(f"{NAME}."):
            continue
        target = layer_of(name)
        lazy = own in LAZY and (target in FACES or (own, target) == ("faces", "memory"))
        if lazy:
            assert not top_level, f"{relative} must import {name} where it is used"
            continue
        assert target in LAYERS, f"{relative} imports the face {name}"
        assert LAYERS.index(target) <= LAYERS.index(own), f"{relative} imports {name} from a higher layer"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_sockets_clocks_and_chance_stay_in_their_layer(path: Path) -> None:
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    for name, _ in imports(path):
        allowed = ONLY.get(name.split(".")[0])
        assert allowed is None or own in allowed or own in FACES, f"{path} imports {name}"


def test_the_public_names_are_pinned() -> None:
    assert langchain_workingmem.__all__ == [
        "ClonedThread",
        "DeletionReport",
        "Diagnosis",
        "EmbeddingError",
        "EmbeddingSizeError",
        "Finding",
        "HistoryOptions",
        "HybridWeights",
        "IdError",
        "Ids",
        "ImportReport",
        "IndexOptions",
        "LocalEmbeddings",
        "Memory",
        "MemoryContext",
        "MessageNotFoundError",
        "ModelError",
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
        "ResourceDeletedError",
        "RevisionNotFoundError",
        "StoredMessage",
        "Thread",
        "ThreadExistsError",
        "ThreadNotFoundError",
        "ThreadOwnershipError",
        "TitleOptions",
        "WorkingMemError",
        "WorkingMemoryConflictError",
        "WorkingMemoryDiff",
        "WorkingMemoryOptions",
        "WorkingMemoryState",
        "WorkingMemoryValidationError",
    ]
    for name in langchain_workingmem.__all__:
        assert getattr(langchain_workingmem, name).__name__ == name
        assert name in dir(langchain_workingmem)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Memroy'"):
        langchain_workingmem.Memroy  # noqa: B018


def test_importing_the_package_imports_no_dependency() -> None:
    code = (
        f"import sys, {NAME}; heavy = {{'redis', 'redisvl', 'langchain_core', 'numpy', 'pydantic', 'wordllama'}}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def public(part: type[Any]) -> list[str]:
    return [name for name, value in vars(part).items() if not name.startswith("_") and inspect.isfunction(value)]


def is_async(method: Any) -> bool:
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)


def parameters(method: Any) -> list[tuple[str, Any, Any]]:
    """Return what a caller may pass; only the types of iterators differ between twins."""
    return [(one.name, one.kind, one.default) for one in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize("part", PARTS)
def test_every_operation_has_an_async_twin_of_the_same_signature(part: type[Any]) -> None:
    names = public(part)
    plain = [name for name in names if not is_async(getattr(part, name)) and name not in NO_IO]
    twins = [name for name in names if is_async(getattr(part, name))]
    assert sorted(twins) == sorted(f"a{name}" for name in plain)
    for name in plain:
        one, other = getattr(part, name), getattr(part, f"a{name}")
        assert parameters(one) == parameters(other), name
        if part is not Resources:
            assert inspect.signature(one) == inspect.signature(other), name
        assert other.__doc__ is not None
        assert name == "close" or other.__doc__ == f"Async twin of `{name}`.", name


@pytest.mark.parametrize("part", PARTS)
def test_arguments_behind_the_subject_are_keyword_only(part: type[Any]) -> None:
    for name in set(public(part)) - NO_IO:
        kinds = [parameter.kind for parameter in inspect.signature(getattr(part, name)).parameters.values()]
        assert kinds[2:].count(inspect.Parameter.POSITIONAL_OR_KEYWORD) == 0, name
