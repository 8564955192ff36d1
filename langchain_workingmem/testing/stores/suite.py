"""What all classes of the suite share: the store, failures that are expected, and calls of the async twins."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from langgraph.store.base import BaseStore

Call = tuple[Any, ...]  # the name of a method, and its arguments

THREADS = 8


class Suite:
    """A group of tests of a store; subclasses declare what the store does."""

    expected_failures: ClassVar[Mapping[str, str]] = {}
    """Tests that the store fails, and why: {"test_name" or "test_name[case]": "reason"}. They have to fail."""

    filter_operators: ClassVar[bool] = True
    """Whether filters know $eq, $ne, $gt, $gte, $lt and $lte."""

    checks_batches: ClassVar[bool] = True
    """Whether `batch` refuses invalid namespaces, as `put` and `get` do."""

    atomic_batches: ClassVar[bool] = True
    """Whether a batch with an operation that is refused writes nothing."""

    large_value: ClassVar[int] = 1_000_000
    """The length of a text that the store keeps in one item."""

    @pytest.fixture
    def store(self) -> Iterator[BaseStore]:
        """An empty store for each test: the subclass has to give it."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store` that yields an empty store")

    @pytest.fixture(autouse=True)
    def _expect_failures(self, request: pytest.FixtureRequest) -> None:
        for name in self.expected_failures:
            if not hasattr(self, name.split("[")[0]):
                pytest.fail(f"expected_failures names {name}, which is no test of {type(self).__name__}")
        for name in {request.node.name, request.node.originalname}:
            if name in self.expected_failures:
                request.applymarker(pytest.mark.xfail(reason=self.expected_failures[name], strict=True))

    def at_once(self, store: BaseStore, calls: list[Call]) -> list[Any]:
        """Do calls from several threads, or of the async twins at once, and return the replies in order."""
        if isinstance(store, Awaited):
            return store.at_once(calls)
        with ThreadPoolExecutor(THREADS) as threads:
            return list(threads.map(lambda call: getattr(store, call[0])(*call[1:]), calls))


class AsyncSuite(Suite):
    """The tests call the async twins of a store, all in one event loop."""

    def open_store(self) -> AbstractAsyncContextManager[BaseStore]:
        """Return an async context manager of an empty store: the subclass has to give it. It is entered in the loop."""
        raise NotImplementedError(f"{type(self).__name__} needs a method `open_store` that returns an empty store")

    @pytest.fixture
    def store(self) -> Iterator[BaseStore]:
        """The store, whose sync methods run the async ones."""
        with asyncio.Runner() as runner:
            opened = self.open_store()
            store = runner.run(_awaited(opened.__aenter__()))
            yield cast("BaseStore", Awaited(store, runner))
            runner.run(_awaited(opened.__aexit__(None, None, None)))


async def _awaited(something: Any) -> Any:
    return await something


class Awaited:
    """A store whose sync methods run the async twins."""

    def __init__(self, store: BaseStore, runner: asyncio.Runner) -> None:
        self.store = store
        self.runner = runner

    def at_once(self, calls: list[Call]) -> list[Any]:
        """Run calls of the async twins by `asyncio.gather`."""

        async def gathered() -> list[Any]:
            return await asyncio.gather(*(getattr(self.store, f"a{call[0]}")(*call[1:]) for call in calls))

        return self.runner.run(gathered())

    def __getattr__(self, name: str) -> Any:
        twin = getattr(self.store, f"a{name}", None)
        if twin is None:
            return getattr(self.store, name)
        return lambda *arguments, **more: self.runner.run(_awaited(twin(*arguments, **more)))
