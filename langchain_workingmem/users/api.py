"""Everything of a resource: deleted, exported, imported."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_workingmem.errors import OptionError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import DeletionReport, ImportReport


class Users:
    """All that belongs to a resource, as `memory.users`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def delete(self, resource_id: str, *, namespaces: Iterable[Sequence[str]] = ()) -> DeletionReport:
        """Delete everything of a resource: threads, messages, vectors, working memory with its revisions.

        `namespaces` are templates of LangGraph store namespaces, such as ("memories", "{user_id}"): the items below go, too.

        At the end all keys are looked through, on every node and without the indexes, until nothing names the resource
        any more: `verified`. Meanwhile every write for the resource, here or elsewhere, raises `ResourceDeletedError`. That
        goes on when a deletion is interrupted, until it is called again; the counts are of what this call has deleted.
        Each thread is gone in one atomic step. A round trip per 100 threads and per 500 vectors, and two per 1,000 keys of the
        database (three with `namespaces`), for each look. A note on an error says how to go on.
        """
        return self._core.run(self._delete(resource_id, namespaces))

    async def adelete(self, resource_id: str, *, namespaces: Iterable[Sequence[str]] = ()) -> DeletionReport:
        """Async twin of `delete`."""
        return await self._core.arun(self._delete(resource_id, namespaces))

    def _delete(self, resource_id: str, namespaces: Iterable[Sequence[str]]) -> Plan[DeletionReport]:
        # they know LangGraph's stores, so that importing them imports langgraph: only for who asks for them
        from langchain_workingmem.users.operations import delete
        from langchain_workingmem.users.store_items import of_resource

        chosen = of_resource(namespaces, resource_id)
        return delete(self._core.state, resource_id, self._core.new_id(), chosen)

    def export(
        self, resource_id: str, *, vectors: bool = False, namespaces: Iterable[Sequence[str]] = ()
    ) -> Iterator[dict[str, Any]]:
        """Give everything of a resource as dicts of JSON values, one for a line, read while you iterate.

        A header with format and version comes first, then working memory with its revisions, then one thread after
        the other with its working memory and its messages, oldest first. Each thread is as it was when its turn came.
        `vectors` adds those of each message, so that an import with the same model and options embeds nothing. Options and
        ttl are not part of it. Items of LangGraph stores below `namespaces`, as for `delete`, come last, without their
        vectors. A round trip per 100 threads, one per thread and 200 messages, and with `namespaces` three per 1,000 keys.
        """
        return self._core.stream(self._export(resource_id, namespaces, vectors=vectors))

    async def aexport(
        self, resource_id: str, *, vectors: bool = False, namespaces: Iterable[Sequence[str]] = ()
    ) -> AsyncIterator[dict[str, Any]]:
        """Async twin of `export`."""
        records = self._core.astream(self._export(resource_id, namespaces, vectors=vectors))
        try:
            async for record in records:
                yield record
        finally:
            await records.aclose()

    def _export(self, resource_id: str, namespaces: Iterable[Sequence[str]], *, vectors: bool) -> Plan[None]:
        from langchain_workingmem.users import archive
        from langchain_workingmem.users.store_items import of_resource

        return archive.export(self._core.state, resource_id, of_resource(namespaces, resource_id), vectors=vectors)

    def load(
        self,
        records: Iterable[Mapping[str, Any]],
        *,
        resource_id: str | None = None,
        namespaces: Iterable[Sequence[str]] = (),
    ) -> ImportReport:
        """Read the records of `export`, or of an importer, into the store, for `resource_id` or whom they name.

        All records are checked before the first is written. One that cannot be imported raises `OptionError` with its number, a thread
        of another owner `ThreadOwnershipError`, and then nothing was written. What waits to be written lies in memory up to
        16 MiB, else in a temporary file, so `records` may be larger than memory, and an iterator that can be read once.
        Items of LangGraph stores need `namespaces`, as for `export`: an item outside of them is refused.
        Ids, order and times stay. What is there already is left alone, working memory included, so a second import
        changes nothing and one that was interrupted goes on. A message older than what its thread already ends with goes
        behind it, and takes a time just after it.
        Vectors are used if this memory would make the same; what has none is embedded at the end, with recall. A round trip per 1,000
        threads, one per thread and 200 messages of it, one per item, two per working memory at most.
        """
        return self._core.run(self._load(_iterator(records), resource_id, namespaces))

    async def aload(
        self,
        records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
        *,
        resource_id: str | None = None,
        namespaces: Iterable[Sequence[str]] = (),
    ) -> ImportReport:
        """Async twin of `load`."""
        source = _aiterator(records) if isinstance(records, AsyncIterable) else _iterator(records)
        return await self._core.arun(self._load(source, resource_id, namespaces))

    def _load(
        self, source: Iterator[Any] | AsyncIterator[Any], resource_id: str | None, namespaces: Iterable[Sequence[str]]
    ) -> Plan[ImportReport]:
        from langchain_workingmem.users import imports as intake
        from langchain_workingmem.users.staging import StagedFile
        from langchain_workingmem.users.store_items import templates

        places = templates(namespaces)
        with StagedFile() as staged:
            return (yield from intake.load(self._core.state, source, resource_id, places, staged, self._core.on_error))


def _iterator(records: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
    if isinstance(records, str | bytes | Mapping) or not isinstance(records, Iterable):
        raise OptionError(
            f"records is of type {type(records).__name__}", remedy="pass dicts, such as map(json.loads, file)"
        )
    return _numbered(iter(records))


def _numbered(source: Iterator[Any]) -> Iterator[Any]:
    number = 0
    while True:
        number += 1
        with _parsing(number):
            try:
                record = next(source)
            except StopIteration:
                return
        yield record


async def _aiterator(records: AsyncIterable[Any]) -> AsyncIterator[Any]:
    source = aiter(records)
    number = 0
    while True:
        number += 1
        with _parsing(number):
            try:
                record = await anext(source)
            except StopAsyncIteration:
                return
        yield record


_ONE_LINE = "give json.loads one line of an export at a time"


@contextmanager
def _parsing(number: int) -> Iterator[None]:
    """Name the record that the caller's `json.loads` could not read; other errors are the caller's own."""
    try:
        yield
    except WorkingMemError:
        raise
    except (ValueError, RecursionError) as error:
        raise OptionError(
            f"record {number}: cannot be read ({error}): {_ONE_LINE}; nothing was imported", remedy=_ONE_LINE
        ) from error
