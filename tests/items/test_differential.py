"""Whatever LangGraph's InMemoryStore answers, ours answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import redis
from hypothesis import example, given
from hypothesis import strategies as st
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, Op, PutOp, SearchItem, SearchOp
from langgraph.store.memory import InMemoryStore

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import examples

pytestmark = pytest.mark.in_turn("face")

LABELS = ["a", "A", "b", "a b", "*", "é", "a,b", "{a}", "a|b"]
NAMES = ["n", "s", "tags", "a b", "é"]
EVERYTHING = 10**6

scalars = (
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([0.5, 1.0, 2.0, "x", "y", "", "1", "a red fox"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
    max_leaves=4,
)
documents = st.dictionaries(st.sampled_from(NAMES), values, max_size=3)
ordered = scalars.filter(lambda value: value is not None)  # others cannot be smaller or larger: they are refused
operators = st.fixed_dictionaries(
    {}, optional={"$eq": values, "$ne": values, "$gt": ordered, "$gte": ordered, "$lt": ordered, "$lte": ordered}
).filter(bool)
inner = operators | st.dictionaries(st.sampled_from(NAMES), operators, min_size=1, max_size=1)
filters = st.none() | st.dictionaries(st.sampled_from(NAMES), values | inner, max_size=2)
namespaces = st.lists(st.sampled_from(LABELS), min_size=1, max_size=3).map(tuple)
prefixes = st.lists(st.sampled_from(LABELS), max_size=2).map(tuple)
keys = st.sampled_from(["k", "K", "k 2", "ключ", ""])
indexes: st.SearchStrategy[Any] = st.sampled_from([None, None, False, ["s"], ["tags[*]", "n"]])
pages = {"limit": st.integers(0, 5), "offset": st.integers(0, 3)}
queries = st.none() | st.sampled_from(["x", "a red fox", "1"])
conditions = st.none() | st.lists(
    st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), prefixes), max_size=2
).map(tuple)
batches = st.lists(
    st.builds(PutOp, namespaces, keys, documents, indexes, ttl=st.none())
    | st.builds(PutOp, namespaces, keys, st.none(), ttl=st.none())
    | st.builds(GetOp, namespaces, keys)
    | st.builds(SearchOp, prefixes, filters, query=queries, **pages)
    | st.builds(ListNamespacesOp, conditions, st.none() | st.integers(1, 3), **pages),
    min_size=1,
    max_size=6,
)


class Twin(InMemoryStore):
    """Embeds a text that an item holds twice, where InMemoryStore miscounts, and no blank one."""

    def _insertinmem_store(self, to_embed: Any, embeddings: list[list[float]]) -> None:
        for (text, places), embedding in zip(to_embed.items(), embeddings, strict=True):
            for namespace, key, path in places if text.strip() else ():
                self._vectors[namespace][key][path] = embedding


class Model:
    """An InMemoryStore without its quirks, in which it disagrees with LangGraph's stores on databases."""

    def __init__(self) -> None:
        self._store = Twin(index={"dims": 64, "embed": WordEmbeddings()})
        self._changes: list[tuple[tuple[str, ...], str]] = []

    def batch(self, ops: list[Op]) -> list[Any]:
        replies = [self._reply(op) for op in ops]
        puts: dict[Any, PutOp] = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        for place, op in puts.items():
            # it keeps the vectors of paths that the new value lacks
            self._store.batch([op._replace(value=None)])
            self._store.batch([op])
            self._changes.append(place)
        for name in [name for name, kept in self._store._data.items() if not kept]:
            del self._store._data[name]
        return replies

    def _reply(self, op: Op) -> Any:
        match op:
            case PutOp():
                return None
            case SearchOp():
                try:
                    (found,) = self._store.batch([op._replace(limit=EVERYTHING, offset=0)])
                except (TypeError, ValueError):
                    return NotImplemented  # it cannot order None or "x" and numbers
                assert isinstance(found, list)
                items: list[Any] = found
                items.sort(key=self._changed, reverse=True)
                items.sort(key=lambda item: (item.score is None, -round(item.score or 0, 5)))
                return items
            case GetOp():
                return self._store._data.get(op.namespace, {}).get(op.key)
        return self._store.batch([op])[0]

    def _changed(self, item: Any) -> int:
        return len(self._changes) - self._changes[::-1].index((item.namespace, item.key))


def facts(item: Any) -> Any:
    return item and (item.namespace, item.key, item.value)


def compare(op: Op, expected: Any, seen: Any) -> None:
    match op:
        case PutOp():
            assert seen is None
        case GetOp():
            assert facts(seen) == facts(expected)
        case ListNamespacesOp():
            assert seen == expected
        case SearchOp() if expected is not NotImplemented:
            page = expected[op.offset : op.offset + op.limit]
            assert len(seen) == len(page)
            assert len({(item.namespace, item.key) for item in seen}) == len(seen)
            for item, twin in zip(seen, page, strict=True):
                assert isinstance(item, SearchItem)
                assert same(item.score, twin.score)
                # equal scores come in any order
                alike = (
                    [facts(twin)] if twin.score is None else [facts(i) for i in expected if same(i.score, twin.score)]
                )
                assert facts(item) in alike


def same(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else abs(one - other) < 2e-3


@examples(150, server=True)
@given(st.lists(batches, min_size=1, max_size=8))
@example([[PutOp(("a",), "k", {"s": ""}, ["s"])], [SearchOp((), query="x")]])
def test_every_reply_is_that_of_the_store_in_memory(
    server: EmbeddedRedis, raw: redis.Redis, face: str, loop_runner: asyncio.Runner, sequence: list[list[Op]]
) -> None:
    prefix = f"t{uuid4().hex[:12]}"
    store = RedisMemoryStore(server.url, key_prefix=prefix, index={"dims": 64, "embed": WordEmbeddings()})
    run: Callable[[list[Op]], list[Any]] = (
        store.batch if face == "sync" else lambda ops: loop_runner.run(store.abatch(ops))
    )
    model = Model()
    store.setup()
    try:
        for ops in sequence:
            for op, expected, seen in zip(ops, model.batch(ops), run(ops), strict=True):
                compare(op, expected, seen)
    finally:
        loop_runner.run(store.aclose())
        for index in ("items", "item-vectors"):
            raw.execute_command("FT.DROPINDEX", f"{prefix}:{index}", "DD")  # type: ignore[no-untyped-call]
