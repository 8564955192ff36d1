"""The shape of the package: who may import whom, which names are public, and that twins are twins."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import langchain_workingmem
from langchain_workingmem.files import Files
from langchain_workingmem.history import History
from langchain_workingmem.memory import Memory
from langchain_workingmem.observations.api import Observations
from langchain_workingmem.recall import Recall
from langchain_workingmem.threads import Threads
from langchain_workingmem.users import Users
from langchain_workingmem.working_memory.store import WorkingMemory

PARTS = [Memory, Users, Threads, History, Recall, WorkingMemory, Files, Observations]
PACKAGE = Path(langchain_workingmem.__file__).parent
NAME = "langchain_workingmem"

# From the bottom up; a module imports from its own layer and from those before it.
LAYERS = [
    {"errors"},
    {"_text"},
    {"checks"},
    {"documents of working memory"},
    {"options"},
    {"usage"},
    {"models"},
    {"display"},
    {"_engine"},
    {"_redis"},
    {"work of models"},
    {"threads", "history", "recall", "working_memory", "turn", "users", "items", "files", "derived"},
    {"embeddings", "embedded", "importers"},
    {"observations", "keeping"},
    {"faces"},
    {"memory"},
    {"serving"},
    {"studio", "mcp", "adapters"},
    {"middleware", "store", "cli", "telemetry", "__init__"},
]
# Which rooms a room may use.
ROOMS = {
    "items": set(),
    "files": {"users"},
    "working_memory": set(),
    "history": set(),
    "derived": set(),
    "threads": {"history", "working_memory", "derived"},
    "recall": {"history", "threads"},
    "turn": {"history", "recall", "working_memory"},
    "users": {"threads", "working_memory", "derived"},
}
# Where data of a wing are met, a function imports it: it is not loaded before.
WHERE_DATA_ARE_MET = {
    ("memory", "keeping"),
    ("turn", "keeping"),
    ("working_memory", "keeping"),
    ("threads", "keeping"),
    ("users", "keeping"),
    ("users", "observations"),
    ("users", "files"),
}
SHARED = {"_text", "_engine", "_redis", "__version__"}  # private for users, not for the rooms
APART: dict[tuple[str, ...], str] = {  # modules of a room that are a layer of their own
    **{("working_memory", name): "documents of working memory" for name in ("document", "schema")},
    ("usage", "counting"): "work of models",
}
# They make something for other modules to run.
NO_IO = {"tools", "load_node", "save_node", "as_retriever", "chat_history"}


def room_at(parts: Sequence[str]) -> str:
    """Return the folder or the root module that a module belongs to."""
    return APART.get(tuple(parts[:2]), parts[0])


def layer_of(room: str) -> int:
    return next(at for at, layer in enumerate(LAYERS) if room in layer)


@cache
def parsed(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text()))]


@cache
def imports(path: Path) -> list[tuple[str, str]]:
    """Return what a module imports anywhere, for type checks too: modules, and the names taken from them."""
    found = []
    for node in parsed(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def each_own_import() -> Iterator[tuple[tuple[str, ...], list[str], str]]:
    """Yield each import from the package: the module that imports, the path below the package, and the name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for module, name in imports(path):
            if module.split(".")[0] == NAME:
                yield path.relative_to(PACKAGE).with_suffix("").parts, module.split(".")[1:], name


def test_a_module_imports_only_from_its_own_and_lower_layers_and_nothing_private() -> None:
    wrong, used = [], set()
    for path, parts, name in each_own_import():
        own, target = room_at(path), room_at(parts) if parts else "errors" if name == "__version__" else name
        used.add((own, target))
        if name.startswith("_") and name not in SHARED and parts[:1] != [own]:
            wrong.append(f"{path} imports the private {name} from elsewhere")
        if (own, target) in WHERE_DATA_ARE_MET:
            continue
        if target != own and layer_of(target) > layer_of(own):
            wrong.append(f"{path}: {own} imports {target} from a higher layer")
        if own in ROOMS and target in ROOMS and target not in ROOMS[own] | {own}:
            wrong.append(f"{path}: {own} uses {target}: list it in ROOMS, if no circle comes of it")
    listed = WHERE_DATA_ARE_MET | {(own, target) for own, targets in ROOMS.items() for target in targets}
    assert (wrong, listed - used) == ([], set())


@pytest.mark.parametrize("part", PARTS)
def test_every_operation_has_an_async_twin_of_the_same_signature(part: type[Any]) -> None:
    public = {name: one for name, one in vars(part).items() if name[0] != "_" and inspect.isfunction(one)}
    twins = {name for name in public if name[0] == "a" and name[1:] in public}
    assert {f"a{name}" for name in public.keys() - twins - NO_IO} == twins
    for name in twins:
        ours, theirs = inspect.signature(public[name[1:]]), inspect.signature(public[name])
        if not re.search("Iterator|Iterable", str(ours)):  # only their types differ
            assert ours == theirs, name
        facts = [[(what.name, what.kind, what.default) for what in each.parameters.values()] for each in (ours, theirs)]
        assert facts[0] == facts[1], name
        assert name == "aclose" or public[name].__doc__ == f"Async twin of `{name[1:]}`.", name
