"""Every id that is accepted works everywhere, whatever it looks like to Redis, to a query or to a file system."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
import redis
from hypothesis import assume, example, given
from hypothesis import strategies as st
from langchain_core.messages import HumanMessage

from langchain_workingmem import IdError
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import examples
from tests.helpers.odd_ids import told
from tests.helpers.operations import OPERATIONS, Caller, options, use
from tests.helpers.types import Make
from tests.house.test_isolation_everywhere import TELLING, reaching_over

ALPHABET = "_.-~%*|{}()[]<>@$:;,=+!?#&/\\'\"` \t\na0A\u00e9e\u0301\u05d0\u202e\u200d\U0001f352\x7f"
WORDS = [
    *("the", "a", "of", "and", "or", "not", "ismissing", "inf", "-inf", "nan", "null"),
    *("as", "true", "1", "-1", "1e5", "0x1"),
    *("_", "__", "_a", "a_", "*", "**", "{}", "@user:{a}", "$r", "%5F", "%", "wm:thread:{a}", "..", "/", "=>[KNN"),
    *("Jos\u00e9", "Jose\u0301", "x" * 512, "_" * 512, "%" * 512, "\u00e9" * 256, "\U0001f352" * 128),
]
ids = st.sampled_from(WORDS) | st.text(ALPHABET, min_size=1, max_size=6)


@examples(9, server=True, derandomize=True)
@given(thread=ids, user=ids, messages=st.lists(ids, min_size=4, max_size=4, unique=True), author=st.none() | ids)
@example("_", "_", ["_", "the", "*", "x" * 512], "_")
@example("x" * 512, "_" * 512, ["-", ".", "~", "%"], "the")
@pytest.mark.parametrize("scope", ["user", "thread"])
def test_every_operation_takes_every_id(
    make_memory: Make,
    runner: asyncio.Runner | None,
    raw: redis.Redis,
    prefix: str,
    scope: Any,
    thread: str,
    user: str,
    messages: list[str],
    author: str | None,
) -> None:
    memory = make_memory(**options(scope), key_prefix=f"{prefix}{uuid4().hex[:6]}")
    names: Any = {"thread": thread, "user": user, "said_under": tuple(messages), "author": author}
    caller = Caller(memory=memory, runner=runner, secret="secret1x", **names)
    for name, operation in OPERATIONS.items():
        reply = operation.call(caller)
        if name in TELLING and name != "observations.delete":  # nothing may be left
            assert caller.secret in told(reply), name
    assert memory.threads.list(user_id=user).total == 0
    assert memory.threads.list(user_id=caller.beside("heir")).total == 1
    assert not list(raw.scan_iter(f"{memory._core.state.keys.prefix}:tombstone:*"))
    memory.history.append(caller.said(), **caller.ids)
    assert [message.id for message in memory.history.messages(thread)] == messages[:2]


labels = ids.filter(lambda label: "." not in label)


@examples(30, server=True, derandomize=True)
@given(
    place=st.lists(labels, min_size=1, max_size=3).map(tuple), keys=st.lists(ids, min_size=2, max_size=2, unique=True)
)
@example(("_",), ["_", "the"])
def test_a_store_takes_every_label_and_every_key(
    make_store: Callable[..., RedisMemoryStore], prefix: str, place: tuple[str, ...], keys: list[str]
) -> None:
    assume(place[0] != "langgraph")
    index = {"dims": 64, "embed": WordEmbeddings(), "fields": ["text", "tags[*]"]}
    use(make_store(index=index, key_prefix=f"{prefix}{uuid4().hex[:6]}"), place, keys)


@pytest.mark.parametrize("id", ["a\0b", "x" * 513])
def test_what_is_no_id_is_refused_wherever_it_stands(make_memory: Make, id: str) -> None:
    memory = make_memory(**options("thread"))
    OPERATIONS["history.append"].call(Caller(memory=memory))
    message = HumanMessage("x").model_copy(update={"id": id})
    calls: list[Callable[[], object]] = [
        *reaching_over(Caller(memory=memory, thread=id), "thread"),
        *reaching_over(Caller(memory=memory, user=id), "thread"),
        partial(memory.threads.create, user_id="u", thread_id=id),
        *(partial(memory.threads.create, user_id=id), partial(memory.threads.list, user_id=id)),
        *(partial(memory.threads.clone, "t", new_thread_id=id), partial(memory.history.for_user, id)),
        partial(memory.threads.transfer, "t", user_id="u", to=id),
        partial(memory.history.append, [message], thread_id="t", user_id="u"),
        *(partial(memory.history.delete, ["m0", id], thread_id="t"), partial(memory.history.truncate, "t", after=id)),
    ]
    for call in calls:
        with pytest.raises(IdError):
            call()
    assert [one.id for one in memory.history.messages("t")] == ["m0", "m1"]
    assert memory.threads.list().total == 1
