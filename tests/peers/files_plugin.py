"""Where the tests of peers keep files, in a store or in a folder, they are in `memory.files`."""

from __future__ import annotations

from base64 import standard_b64encode
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest
from langgraph.store.base import GetOp, Item, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore
from peer_plugin import OURS, server  # type: ignore[import-not-found] # beside this file

from langchain_workingmem import Memory
from langchain_workingmem.errors import FileMissingError, FilePathError
from langchain_workingmem.options import FileOptions


@cache
def memory() -> Memory:
    return Memory(server.url, files=FileOptions(max_file_bytes=10 * 2**20))


class FilesStore(InMemoryStore):
    """A store that shows the files of a backend, because tests look into it, and put files there."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.name = uuid4().hex

    def owner(self, namespace: tuple[str, ...]) -> str:
        return "/".join((self.name, *namespace))

    def batch(self, ops: Any) -> list[Any]:
        return [self._one(op) for op in ops]

    async def abatch(self, ops: Any) -> list[Any]:
        return self.batch(ops)

    def _one(self, op: Any) -> Any:
        match op:
            case GetOp(namespace, key):
                with suppress(FileMissingError, FilePathError):
                    return Item(**self._item(namespace, key))
            case SearchOp(namespace) if found := memory().files.glob("**", user_id=self.owner(namespace)):
                return [SearchItem(**self._item(namespace, one.path)) for one in found]
            case PutOp(namespace, key, {"content": str(content)}):
                return memory().files.write(key, content, user_id=self.owner(namespace))
        return super().batch([op])[0]

    def _item(self, namespace: tuple[str, ...], key: str) -> dict[str, Any]:
        file = memory().files.read(key, user_id=self.owner(namespace))
        value = {"content": file.content, "encoding": "utf-8"}
        if isinstance(file.content, bytes):
            value = {"content": standard_b64encode(file.content).decode(), "encoding": "base64"}
        times = {"created_at": file.info.created_at, "updated_at": file.info.updated_at}
        return {"namespace": namespace, "key": key, "value": value, **times}


def deepagents() -> None:
    from langchain_workingmem.adapters.deepagents import FilesBackend

    theirs = import_module("deepagents.backends.store").StoreBackend

    class StoreBackend(FilesBackend):
        """Ours, made as theirs is: a namespace of a store is an owner."""

        _get_store, _get_namespace = theirs._get_store, theirs._get_namespace

        def __init__(self, *, namespace: Any, store: Any = None) -> None:
            super().__init__(memory(), user_id=lambda _: self._get_store().owner(self._get_namespace()))
            self._namespace, self._store = namespace, store

    OURS.add(StoreBackend)
    for place in ("deepagents.backends.store", "deepagents.backends"):
        import_module(place).StoreBackend = StoreBackend  # type: ignore[attr-defined]
    import_module("langgraph.store.memory").InMemoryStore = FilesStore  # type: ignore[attr-defined]


def anthropic() -> None:
    from langchain_workingmem.adapters.anthropic import AsyncMemoryTool, MemoryTool

    tools = import_module("anthropic.lib.tools._beta_builtin_memory_tool")

    class InFolder:
        """Ours, made as theirs are: a folder is an owner."""

        def __init__(self, base_path: str = "./memory") -> None:
            super().__init__(memory(), user_id=base_path)  # type: ignore[call-arg]
            self.base_path = base_path

    for name, ours in (("LocalFilesystem", MemoryTool), ("AsyncLocalFilesystem", AsyncMemoryTool)):
        made = type(name, (InFolder, ours), {})
        OURS.add(made)
        setattr(tools, f"Beta{name}MemoryTool", made)


for part in (deepagents, anthropic):  # before any test is imported
    with suppress(ModuleNotFoundError):
        part()


def files_in(base_path: str) -> dict[str, str]:
    """Return what lies in the folder, by its path below it."""
    found = memory().files.glob("**", user_id=base_path)
    return {one.path[1:]: memory().files.read(one.path, user_id=base_path).text for one in found}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    for item in items:
        if hasattr(item.module, "get_directory_snapshot"):  # of Anthropic's tests
            item.module.get_directory_snapshot = files_in
