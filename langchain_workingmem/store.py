"""A long-term store for LangGraph on Redis: `graph.compile(store=...)`, `create_agent(store=...)`, langmem's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, cast

from langgraph.store.base import BaseStore, PutOp, ensure_embeddings

from langchain_workingmem._engine import calls
from langchain_workingmem._redis.indexes import with_layout
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.state import SetUpOnEntry
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.items import StoreState, Vectors, millis, run_operations
from langchain_workingmem.options import CONNECT_TIMEOUT, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from langchain_core.embeddings import Embeddings
    from langgraph.store.base import IndexConfig, Op, Result, TTLConfig

    from langchain_workingmem._engine.clients import AsyncClient, SyncClient
    from langchain_workingmem._engine.plan import Plan

_QUERY_CACHE = 1000  # embeddings


class RedisMemoryStore(SetUpOnEntry, BaseStore):
    """A LangGraph store on Redis.

        with RedisMemoryStore.from_conn_string("redis://localhost:6379", index={"dims": 384, "embed": model}) as store:
            store.put(("memories", "maya"), "dog", {"text": "Maya's dog is called Nougat"})
            store.search(("memories", "maya"), query="what pets does she have?")

    One object serves sync and async callers, threads and event loops; `batch` is atomic for each item. A get, a put
    or a delete takes one round trip, and so does a batch of a hundred of one kind; a search takes one to four, more
    when a few items have many vectors (docs/store.md lists the cases). Without a query the item that was put last comes
    first. With a query the best vector of an item counts, scores are similarities (cosine: -1 to 1), and items without
    vectors come last with the score None. Filters mean the same as in LangGraph's InMemoryStore, except that values
    without an order, such as None and 3, do not match instead of raising. The index decides equality; for comparisons
    the items below the namespace are read. Of a query of more than 4,000 characters the beginning and the end count.

    A `Memory` with the same `key_prefix` uses other keys.

    Args:
        redis_url: redis://, rediss:// or unix://; None: the environment's REDIS_URL, else redis://localhost:6379.
        client: A redis-py client for sync calls instead of a URL; the store does not close it.
        async_client: The same for async calls, bound to the event loop that it was made for.
        index: LangGraph's IndexConfig: `dims`, `embed` (an Embeddings object, a sync or async function, or a name such
            as "openai:text-embedding-3-small" or "local"), `fields` (JSON paths, by default the whole value); and
            `distance_type` ("cosine", "inner_product" or "l2"). None: no vector search.
        ttl: LangGraph's TTLConfig, in minutes and fractions of them: `default_ttl`, `refresh_on_read`. Expired items
            are never returned, so `omit_expired` changes nothing and no sweeper is needed.
        key_prefix: The start of every key; stores with different prefixes are separate.
        create_index: False: never create an index, for a Redis user without that right.
        timeout: How long to wait for each reply, as in `Memory`.
        connect_timeout: How long to wait for a connection, as in `Memory`.
    """

    supports_ttl = True

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        client: SyncClient | None = None,
        async_client: AsyncClient | None = None,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        key_prefix: str = "wm",
        create_index: bool = True,
        timeout: timedelta = TIMEOUT,
        connect_timeout: timedelta = CONNECT_TIMEOUT,
    ) -> None:
        # imported here, because redis-py and numpy are slow to import
        from langchain_workingmem._engine.calls import Embedder
        from langchain_workingmem._engine.run import runners

        for argument, value in (("index", index), ("ttl", ttl)):
            if not isinstance(value, dict | None):
                raise wrong_type(value, argument, "pass a dict, as LangGraph's stores take it")
        self.index_config = cast("IndexConfig | None", None if index is None else dict(index))
        self.embeddings = None if index is None else _embeddings(index)
        if ttl and (default_ttl := ttl.get("default_ttl")) is not None:
            millis(default_ttl, "ttl['default_ttl']")
        self.ttl_config = None if ttl is None else cast("TTLConfig", dict(ttl))
        self._runner, self._async_runner = runners(redis_url, client, async_client, timeout, connect_timeout)
        embedder = Embedder(self.embeddings, _QUERY_CACHE)
        vectors = None if self.index_config is None else Vectors.of(self.index_config)
        self._state = StoreState(Keys(key_prefix), embedder, vectors, create_index)

    @classmethod
    def from_conn_string(
        cls, redis_url: str, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None, key_prefix: str = "wm"
    ) -> Self:
        """Make a store on a URL, for `with` or `async with`; else `close` it. The constructor takes more options."""
        return cls(redis_url, index=index, ttl=ttl, key_prefix=key_prefix)

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations and return their results in order; reads return what was stored before the batch.

        Everything is checked and embedded before anything is written; of several puts to one item the last wins. Raises
        `InvalidNamespaceError`, `OptionError` (both ValueErrors), `EmbeddingError`, `EmbeddingSizeError`.
        """
        return self._runner.run(self._plan([*ops]))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Async twin of `batch`."""
        return await self._async_runner.run(self._plan([*ops]))

    def _plan(self, ops: list[Op]) -> Plan[list[Result]]:
        plan = run_operations(self._state, ops)
        if calls.plan_wrapper is not None:
            name = "put" if any(isinstance(op, PutOp) for op in ops) else "search"
            plan = calls.plan_wrapper(plan, f"RedisStore.{name}", self._state.keys.prefix)
        return plan if self._state.layout_known else with_layout(self._state, plan)

    def setup(self) -> None:
        """Create the indexes now instead of at first use. Idempotent."""
        self._runner.run(with_layout(self._state, self._state.setup()))

    async def asetup(self) -> None:
        """Async twin of `setup`."""
        await self._async_runner.run(with_layout(self._state, self._state.setup()))

    def close(self) -> None:
        """Close the sync connections that were opened here."""
        self._runner.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop, and those that `close` does."""
        await self._async_runner.aclose(self.close)

    def __repr__(self) -> str:
        return f"<RedisMemoryStore {self._state.keys.prefix!r}{', with vectors' if self._state.vectors else ''}>"


def _embeddings(index: IndexConfig) -> Embeddings:
    embed = index.get("embed")
    if isinstance(embed, str):
        from langchain_workingmem.embeddings import embedding_model

        return embedding_model(embed)
    if not callable(embed) and not hasattr(embed, "embed_documents"):
        remedy = "use an Embeddings object, a function from texts to vectors, or a model's name"
        raise OptionError(f"index={{'embed': {embed!r}}}", remedy=remedy)
    return ensure_embeddings(embed)
