"""The public part of recall, `memory.recall`, and the plan of `reindex`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.calls import traced
from langchain_workingmem._engine.plan import Plan, scan, send
from langchain_workingmem._redis.indexes import ListedThread
from langchain_workingmem._redis.keys import Facts, check_id
from langchain_workingmem._redis.scripts import SWEEP, sweep
from langchain_workingmem._redis.state import Operations, operation, twin
from langchain_workingmem.display import progress_bar
from langchain_workingmem.errors import ThreadNotFoundError
from langchain_workingmem.history.save import heal
from langchain_workingmem.recall.question import Query
from langchain_workingmem.recall.search import learn_floor, search_messages
from langchain_workingmem.threads import get_existing_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.options import RecallArguments

BATCH = 100  # messages that are looked at, embedded and written at a time


class Recall(Operations):
    """Semantic recall of a memory, as `memory.recall`. Without `RecallOptions` it is off and costs nothing."""

    @operation
    def search(
        self,
        query: str,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        **arguments: Unpack[RecallArguments],
    ) -> Plan[RecallResult]:
        """Find the messages nearest in meaning, the best first, each with the messages around it.

        An argument that is left out comes from `RecallOptions`. Scope "user" searches all threads of `user_id`
        (or of the owner of `thread_id`), "thread" only `thread_id`. `threshold` is a similarity from 0 to 1, times are
        inclusive. `metadata` is a filter, such as `{"topic": "huts", "priority": {"$gte": 3}}`, of keys of messages
        that `RecallOptions.filterable` names and keys of threads that `Memory(thread_filters=...)` names. `max_tokens`
        (estimated) bounds the whole result: the best hit, what stands beside it, then the next hit, of at most 200
        without `top_k`. A message that takes more than its share comes as an excerpt around its best chunk, in a copy
        marked `lc_source`. No text comes twice. No other rule of a turn (docs/recall.md) applies. A blank query finds
        nothing; of a query of more than 4,000 characters the beginning and the end count.

        One call of the embedding model, unless its cache has the query, and two round trips. A third when only a thread
        is given, when `metadata` names a key of threads, when the chunks of a few long messages, or messages that
        `metadata` leaves out, fill the candidates, or, with another call of it, when a question first names an author.
        """
        state = self._core.state
        ids: Any = {"thread_id": thread_id, "user_id": user_id, "thread_filters": state.thread_filters}
        checked = Query.of(state.recalling, query, **ids, **arguments)
        return traced(search_messages(state, checked), checked.text)

    asearch = twin(search)

    @operation
    def reindex(
        self, *, user_id: str | None = None, thread_id: str | None = None, force: bool = False, progress: bool = True
    ) -> Plan[int]:
        """Embed every message that lacks vectors of the present model, and return how many got them.

        It repairs messages that a crash or a failing model left without vectors, and those saved while recall was off.
        Without ids it also changes the embedding model, the roles, `chunk_tokens` or the index: the index is rebuilt,
        and meanwhile recall finds what is done so far. It may be interrupted, repeated, and run beside writers.
        `progress` shows a bar. Per 100 messages a round trip, or three and one call of the model.

        A model is known by its `model`, `model_name` or `model_id`, else by the name of its class. Other weights under
        the same name, and keys of vectors that others have deleted, cannot be noticed: for them, `force` embeds every
        message again, from the start if it was interrupted. Call it on a new `Memory`, because one in use has cached
        vectors (`embedding_cache_size`).
        """
        with progress_bar("reindex", "messages", shown=progress) as advance:
            plan = reindex_messages(self._core.state, user_id, thread_id, force=force, progress=advance)
            return (yield from plan)

    areindex = twin(reindex)


def reindex_messages(
    state: MemoryState,
    user_id: str | None,
    thread_id: str | None,
    *,
    force: bool = False,
    progress: Callable[[int, int], object] = lambda _done, _total: None,
) -> Plan[int]:
    """Embed messages without vectors of the present model, by `force` all of them; return how many were embedded."""
    state.recalling  # noqa: B018 - raises where recall is off
    is_whole = user_id is None and thread_id is None
    if thread_id is not None:
        existing = yield from get_existing_thread(state, thread_id, user_id)
        threads = [ListedThread(existing.id, existing.message_count, 0)]
    else:
        if user_id is not None:
            check_id(user_id, "user_id")
        yield from state.indexes.ready()
        threads = yield from state.indexes.threads(user_id)
    if is_whole:
        cursors: dict[str, int] | None = None
        while cursors != {}:  # what deletions have left, also of threads that are gone
            dropped, cursors = yield from scan(f"{state.keys.dropped_prefix}*", cursors)
            yield from sweep(state, *{state.keys.thread_of(key) for key in dropped})
        yield from state.indexes.rebuild_index()
        yield from learn_floor(state)
    else:
        for start in range(0, len(threads), SWEEP):
            yield from sweep(state, *(thread.id for thread in threads[start : start + SWEEP]))
        dims = state.indexes.dims or (yield from state.embedder.dimensions())
        yield from state.indexes.vectors_ready(dims)
    settings = state.indexes.digest
    done, embedded, total = 0, 0, sum(thread.message_count for thread in threads)
    progress(done, total)
    for thread in threads:
        keys, after, has_more = state.keys.of(thread.id), "-inf", True
        while has_more:
            (members,) = yield from send(("ZRANGE", keys.order, after, "+inf", "BYSCORE", "LIMIT", 0, BATCH))
            batch = [Facts.read(member.decode()) for member in members]
            if stale := [facts for facts in batch if force or facts.settings != settings]:
                (bodies,) = yield from send(("HMGET", keys.messages, *(facts.seq for facts in stale)))
                with suppress(ThreadNotFoundError):  # deleted meanwhile
                    embedded += yield from heal(state, thread.id, zip(stale, bodies, strict=True))
            done += len(batch)
            progress(done, max(done, total))
            if has_more := len(batch) == BATCH:
                after = f"({batch[-1].seq}"
    return embedded
