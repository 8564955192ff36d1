"""The public part of recall, `memory.recall`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.core import Operations, operation, twin
from langchain_workingmem.display.bars import progress_bar
from langchain_workingmem.recall.query import Query
from langchain_workingmem.recall.reindex import reindex_messages
from langchain_workingmem.recall.search import search_as_run

if TYPE_CHECKING:
    from typing import Unpack

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.models import RecallResult
    from langchain_workingmem.options import RecallArguments


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
        inclusive. `metadata` is a filter, such as `{"topic": "huts", "priority": {"$gte": 3}}`, of keys of messages named in
        `RecallOptions.filterable` and of keys of threads named in `Memory(thread_filters=...)`. `max_tokens` (estimated)
        bounds the whole result: the best hit, what stands beside it, then the next hit, of at most 200 without `top_k`.
        A message that takes more than its share comes as an excerpt around its best chunk, in a copy marked `lc_source`.
        No text comes twice. No other rule of a turn (docs/recall.md) applies.
        A blank query finds nothing; of a query of more than 4,000 characters the beginning and the end count.

        One call of the embedding model, unless its cache has the query, and two round trips. A third when only a thread
        is given, when `metadata` names a key of threads, when the chunks of a few long messages, or messages that `metadata`
        leaves out, fill the list of candidates, or, with another call of the model, when a question is the first to name an author.
        """
        state = self._core.state
        ids: dict[str, Any] = {
            "thread_id": thread_id,
            "user_id": user_id,
            "thread_filters": state.thread_filters,
        }
        asked = Query.of(state.recalling, query, **ids, **arguments)
        return search_as_run(state, asked)

    asearch = twin(search)

    @operation
    def reindex(
        self,
        *,
        user_id: str | None = None,
        thread_id: str | None = None,
        force: bool = False,
        progress: bool = True,
    ) -> Plan[int]:
        """Embed every message that lacks vectors of the present model, and return how many got them.

        It repairs messages that a crash or a failing model left without vectors, and those saved while recall was off.
        Without ids it also changes the embedding model, the roles, `chunk_tokens` or the index: the index is rebuilt,
        and meanwhile recall finds what is done so far. It may be interrupted, repeated, and run beside writers.
        `progress` shows a bar. Per 100 messages two round trips and one call of the model.

        A model is known by its `model`, `model_name` or `model_id`, else by the name of its class. Other weights under
        the same name cannot be noticed: for them, `force` embeds every message again, from the start if it was
        interrupted. Call it on a new `Memory`, because one in use has cached vectors (`embedding_cache_size`).
        """
        with progress_bar("reindex", "messages", shown=progress) as advance:
            plan = reindex_messages(self._core.state, user_id, thread_id, force=force, progress=advance)
            return (yield from plan)

    areindex = twin(reindex)
