"""Recall: older messages that matter to a question."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_workingmem.recall import operations as plans
from langchain_workingmem.recall.query import Query
from langchain_workingmem.recall.reindex import reindex_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem._redis.core import Core
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.options import RecallArguments


class Recall:
    """Semantic recall of a memory, as `memory.recall`. It is off, and costs nothing, without `RecallOptions`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def search(
        self,
        query: str,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        **arguments: Unpack[RecallArguments],
    ) -> RecallResult:
        """Find the messages nearest in meaning, the best first, each with the messages around it.

        What is left out comes from `RecallOptions`. Scope "resource" searches all threads of `resource_id` (or of the
        owner of `thread_id`), "thread" only `thread_id`. `threshold` is a similarity from 0 to 1, times are inclusive,
        `metadata` compares keys named in `RecallOptions.filterable`: they are looked up in a message's
        `additional_kwargs`, in `additional_kwargs["metadata"]` and in `response_metadata`.
        `max_tokens` (estimated) bounds all that comes back: then hits are added, the best first, as long as they fit,
        with their windows or, when those are too long, alone; without `top_k` their number is not limited otherwise. A message
        that takes more than its share comes as an excerpt around its best piece, in a copy marked `lc_source`. Nothing
        else of a turn's rules (docs/recall.md) applies to a search.
        One call of the embedding model, unless it knows the query, and two round trips; a third when only a thread is
        known, when the pieces of a few long messages fill the whole list of candidates, or, with another call of the model, when
        a question is the first to name one of several authors; two more when a hit is gone since, as of a thread that has
        expired. A blank query finds nothing; of one of more than 4,000 characters the beginning and the end are looked for.
        """
        return self._core.run(self._search(query, thread_id=thread_id, resource_id=resource_id, **arguments))

    async def asearch(
        self,
        query: str,
        *,
        thread_id: str | None = None,
        resource_id: str | None = None,
        **arguments: Unpack[RecallArguments],
    ) -> RecallResult:
        """Async twin of `search`."""
        return await self._core.arun(self._search(query, thread_id=thread_id, resource_id=resource_id, **arguments))

    def _search(self, query: str, **arguments: Any) -> Plan[RecallResult]:
        state = self._core.state
        return plans.search_as_run(state, Query.of(state.recalling, query, **arguments))

    def reindex(
        self,
        *,
        resource_id: str | None = None,
        thread_id: str | None = None,
        force: bool = False,
        progress: bool = True,
    ) -> int:
        """Embed every message that lacks vectors of the present model, and return how many got them.

        It heals what a crash or a failing model left without vectors, takes in messages saved while recall was off,
        and, without ids, changes the embedding model, the roles, `chunk_tokens` or the index: then the index is
        rebuilt and recall finds what is done so far. Safe to interrupt, to repeat, and beside writers. `progress`
        shows a bar. Per 100 messages two round trips and one call of the model.

        A model is known by its `model`, `model_name` or `model_id`, else by the name of its class. Other weights under
        the same name cannot be noticed: for them, `force` embeds every message again, from the start if it was
        interrupted. Call it on a new `Memory`, as one that is in use remembers vectors (`embedding_cache_size`).
        """
        plan = reindex_messages(self._core.state, resource_id, thread_id, force=force)
        with _bar(shown=progress) as advance:
            return self._core.run(plan, advance)

    async def areindex(
        self,
        *,
        resource_id: str | None = None,
        thread_id: str | None = None,
        force: bool = False,
        progress: bool = True,
    ) -> int:
        """Async twin of `reindex`."""
        plan = reindex_messages(self._core.state, resource_id, thread_id, force=force)
        with _bar(shown=progress) as advance:
            return await self._core.arun(plan, advance)


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[int, int], object]]:
    from tqdm.auto import tqdm

    with tqdm(desc="reindex", unit=" messages", disable=not shown) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
