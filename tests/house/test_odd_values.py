"""Values that no JSON can hold are refused at the door, with the remedy, and nothing of the call is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import redis

from langchain_workingmem import Memory
from langchain_workingmem.errors import OptionError, WorkingMemError
from tests.working_memory.samples import with_memory

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
HUGE = 10**5000  # more digits than Python prints


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = wrap(value)
    return value


def endless() -> Any:
    """Make what holds itself twice at each level, so that whoever walks through it never ends."""
    one: dict[str, Any] = {}
    one |= {"a": [one], "b": [one]}
    return one


NO_JSON: dict[str, Any] = {
    "deep dicts": nested(102, lambda inner: {"a": inner}),
    "very deep lists": nested(100_000, lambda inner: [inner]),
    "itself": endless(),
    "a huge number": HUGE,
    "NaN": math.nan,
    "an object": object(),
    "bytes that are no text": b"\xff",
    "keys that are bytes": {b"\xff": 1},
}
# what working memory writes as JSON, because its schemas may have such fields
NO_PLAIN_JSON: dict[str, Any] = {
    "bytes": b"x",
    "a set": {1, 2},
    "numbers as keys": {1: 2},
    "a pair as key": {"a": [{(1, 2): 3}]},
}
# what JSON can hold, odd as it is
every = pytest.mark.parametrize("value", (both := NO_JSON | NO_PLAIN_JSON).values(), ids=both)
worst = pytest.mark.parametrize("value", NO_JSON.values(), ids=NO_JSON)


@pytest.fixture
def written(raw: redis.Redis, prefix: str) -> Callable[[], dict[bytes, bytes]]:
    """Look at all that is stored."""
    client: Any = raw

    def look() -> dict[bytes, bytes]:
        return {key: client.dump(key) for key in client.scan_iter(f"{prefix}*", count=1000)}

    return look


def refused(call: Callable[[], object], written: Callable[[], Any], kind: type[Exception] = WorkingMemError) -> str:
    """Return what a refusal says, after a look at whether it has left anything behind."""
    before = written()
    with pytest.raises(kind) as found:
        call()
    assert isinstance(found.value, ValueError)
    assert written() == before
    said = str(found.value)
    assert len(said) < 1000
    return said


@every
def test_metadata_of_threads(plain: Memory, written: Any, value: Any) -> None:
    plain.threads.create(thread_id="t", user_id="u", metadata={"x": 1})
    calls: list[Callable[[dict[str, Any]], object]] = [
        lambda odd: plain.threads.create(thread_id="new", user_id="u", metadata=odd),
        lambda odd: plain.threads.update("t", title="new", metadata=odd),
        lambda odd: plain.threads.clone("t", new_thread_id="new", metadata=odd),
    ]
    for call in calls:
        said = refused(lambda call=call: call({"y": 1, "x": value}), written, OptionError)  # type: ignore[misc]
        assert "use strings, numbers, booleans" in said
        refused(lambda call=call: call(value), written, OptionError)  # type: ignore[misc]
    for odd in (value, {"y": 1, "x": value}):  # as a filter, it may also be too deep
        refused(lambda odd=odd: plain.threads.list(user_id="u", metadata=odd), written, OptionError)  # type: ignore[misc]


@worst
@pytest.mark.parametrize("mode", ["merge", "replace", "append"])
def test_updates_of_working_memory(make_memory: Callable[..., Memory], written: Any, value: Any, mode: Any) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    memory.working_memory.update({"x": [1]}, **IDS)
    for odd in ({"x": value}, {"x": [value]}, [value]):
        refused(lambda odd=odd: memory.working_memory.update(odd, mode=mode, **IDS), written)  # type: ignore[misc]
