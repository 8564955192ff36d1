"""What the observer reads ahead: it stands in the log, nothing of it is shown, and then all of it at once."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory
from tests.helpers.archives import unsealed
from tests.helpers.noting import MARK, Noting, notes_in, observing, raw_marks, words
from tests.helpers.types import Make
from tests.observations.test_runs import step

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
MARK_BYTES = re.compile(MARK.pattern.encode())
AHEAD: dict[str, Any] = {"background": True, "message_tokens": 800, "keep_tokens": 120, "batch_tokens": 200}


def say(memory: Memory, first: int, count: int) -> None:
    """Store turns of about 75 tokens each."""
    for at in range(2 * first, 2 * (first + count), 2):
        memory.save_turn([HumanMessage(words(at), id=f"m{at}"), AIMessage(words(at + 1), id=f"m{at + 1}")], **IDS)
        memory.settled()


def stored(raw: redis.Redis, prefix: str, field: str = "") -> bytes:
    """Return what the log of the thread holds, or some of its fields."""
    found: Any = raw.hgetall(f"{prefix}:observations:t:{{t}}")
    return b"".join(value for name, value in found.items() if name.startswith(field.encode()))


def ahead(raw: redis.Redis, prefix: str) -> set[str]:
    return {mark.decode() for mark in MARK_BYTES.findall(stored(raw, prefix, "ahead:"))}


def shown(memory: Memory) -> tuple[set[str], set[str]]:
    """Return the marks of the log, and of the messages that are shown as they are."""
    context = memory.context([HumanMessage("hm")], **IDS)
    return set(MARK.findall(notes_in(context.messages))), set(raw_marks(context.messages))


@pytest.fixture
def observer() -> Noting:
    return Noting()


@pytest.fixture
def memory(make_memory: Make, observer: Noting) -> Memory:
    """Return a memory that has read ahead, and shows nothing of it yet."""
    memory = make_memory(observations=observing(observer, **AHEAD), ttl=timedelta(days=1))
    say(memory, 0, 8)
    assert observer.asked
    return memory


def test_it_is_shown_at_once_when_it_is_due(memory: Memory, observer: Noting, raw: redis.Redis, prefix: str) -> None:
    changes = 0
    before: list[str] = []
    for at in range(8, 60):
        say(memory, at, 1)
        noted, messages = shown(memory)
        assert noted.isdisjoint(messages)
        assert len(noted | messages) == 2 * at + 2
        assert ahead(raw, prefix) <= messages
        assert len(messages) < 26
        now = [str(one.content) for one in memory.context([HumanMessage("hm")], **IDS).messages[:-1]]
        changes += now[: len(before)] != before
        before = now
    assert len(observer.asked) > 2 * changes - 2 > 8
    seen = [mark for asked in observer.asked for mark in MARK.findall(str(asked[1].text).split("</known>")[-1])]
    assert len(seen) == len({*seen})


def test_observe_shows_it(memory: Memory, observer: Noting, raw: redis.Redis, prefix: str) -> None:
    assert ahead(raw, prefix)
    assert shown(memory)[0] == set()
    memory.observations.observe("t")
    assert not raw.hexists(f"{prefix}:observations:t:{{t}}", "ahead")
    noted, messages = shown(memory)
    assert len(noted) >= 12
    assert len(noted | messages) == 16
    seen = [mark for asked in observer.asked for mark in MARK.findall(str(asked[1].text).split("</known>")[-1])]
    assert len(seen) == len({*seen})


def test_another_process_shows_it(memory: Memory, make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    """Its save crosses the limit, while its own observer is down."""
    written = ahead(raw, prefix)
    other = make_memory(observations=observing(Noting(fails=True), **AHEAD))
    say(other, 8, 5)
    assert written <= shown(other)[0]
    assert ahead(raw, prefix).isdisjoint(written)


@pytest.mark.parametrize("how", ["delete", "update"])
def test_nothing_is_left_of_a_message_that_is_deleted_or_edited(
    memory: Memory, make_memory: Make, raw: redis.Redis, prefix: str, how: str
) -> None:
    gone = min(ahead(raw, prefix))
    id = f"m{gone[4:-1]}"
    plain = make_memory()
    if how == "delete":
        plain.history.delete([id], **IDS)
    else:
        plain.history.update([HumanMessage("edited", id=id)], **IDS)
    left = ahead(raw, prefix)
    assert left
    assert gone not in left
    assert gone.encode() not in stored(raw, prefix)
    say(memory, 8, 12)
    noted, messages = shown(memory)
    assert left <= noted
    assert gone not in noted | messages


def test_a_log_that_is_cleared_or_goes_back_forgets_it(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    say(memory, 8, 14)
    assert ahead(raw, prefix)
    memory.observations.clear(**IDS)
    assert not ahead(raw, prefix)
    assert not shown(memory)[0]


def test_what_becomes_of_it_with_its_thread(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    written = ahead(raw, prefix)
    copy = memory.threads.clone("t", new_thread_id="c", user_id="u")
    assert len(memory.observations.observe(copy.thread.id, user_id="u")) >= 12
    records = unsealed(memory.users.export("u"))
    assert raw.pexpiretime(f"{prefix}:observations:t:{{t}}") == raw.pexpiretime(f"{prefix}:thread:{{t}}")
    memory.threads.transfer("t", user_id="u", to="v")
    assert ahead(raw, prefix) == written
    assert len(memory.observations.observe("t", user_id="v")) >= 12
    memory.users.delete("u")
    memory.users.delete("v")
    assert not [*raw.scan_iter(f"{prefix}:observations:*")]
    memory.users.load(records)
    assert shown(memory) == (set(), {f"mark{at}x" for at in range(16)})
    assert len(memory.observations.observe("t", user_id="u")) >= 12


def test_a_short_present_turn_stays_whole(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    """Steps of it that were read ahead are shown once it is longer than `message_tokens`, or over."""

    def of_turn(marks: set[str]) -> list[str]:
        return [mark for mark in marks if int(mark[4:-1]) >= 200]

    memory = make_memory(observations=observing(Noting(), **AHEAD))
    say(memory, 0, 3)
    memory.history.append([HumanMessage(words(100), id="q")], **IDS)
    most = 0
    for at in range(200, 240):
        memory.history.append(step(at), **IDS)
        memory.settled()
        noted, messages = shown(memory)
        most = max(most, len(ahead(raw, prefix)))
        assert "mark100x" in messages
        if at < 215:  # about 600 tokens
            assert not of_turn(noted)
    assert most
    assert len(of_turn(noted)) > 20
