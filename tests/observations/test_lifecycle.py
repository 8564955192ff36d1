"""What becomes of observations when their messages, threads and owners go: nothing of what is gone is left in any key."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, ObservationOptions, RecallOptions
from langchain_workingmem.options import Scope
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.observers import Echo
from tests.helpers.types import Make

SCOPES: tuple[Scope, ...] = ("thread", "resource")
each_scope = pytest.mark.parametrize("scope", SCOPES)
END = ("is that all?", "it is")
IDS: Any = {"thread_id": "t", "resource_id": "u"}


def observed_by(scope: Scope, **more: Any) -> ObservationOptions:
    settings = {"message_tokens": 50, "keep_tokens": 0, "background": False, "model": Echo()}
    return ObservationOptions(scope=scope, **{**settings, **more})


def canary(thread: str, at: int) -> str:
    return f"canary{thread}x{at}x"


def talk(memory: Memory, thread: str = "t", resource: str = "u", *, turns: int = 6, first: int = 0) -> None:
    """Store turns: in each, the user and the assistant say a word of their own; and a last one, which stays raw."""
    for at in range(2 * first, 2 * (first + turns), 2):
        question = HumanMessage(f"please note {canary(thread, at)}", id=f"m{at}")
        answer = AIMessage(f"noted {canary(thread, at + 1)}", id=f"m{at + 1}")
        memory.history.append([question, answer], thread_id=thread, resource_id=resource)
    end = [HumanMessage(END[0], id=f"q{first}"), AIMessage(END[1], id=f"a{first}")]
    memory.history.append(end, thread_id=thread, resource_id=resource)


def log_of(memory: Memory, thread: str = "t", resource: str = "u") -> list[str]:
    return [one.text for one in memory.observations.get(thread_id=thread, resource_id=resource)]


def shown(memory: Memory, thread: str = "t", resource: str = "u") -> dict[str, list[str]]:
    """Return what a context shows: texts of the log, texts of raw messages."""
    context = memory.context([HumanMessage("and now?")], thread_id=thread, resource_id=resource)
    assert context.observations is not None
    texts = [message.text.removesuffix("\n\n").split("</observations>\n\n")[-1] for message in context.messages[:-1]]
    return {
        "log": [one.text for one in context.observations],
        "raw": [text for text in texts if text not in END and not text.startswith("<observations>")],
    }


def everything(raw: redis.Redis, prefix: str) -> bytes:
    """Return all that is stored under the prefix, names included, as one text."""
    parts: list[Any] = []
    for key in raw.scan_iter(f"{prefix}:*", count=1000):
        parts.append(key)
        match raw.type(key):
            case b"hash":
                found: Any = raw.hgetall(key)
                parts += [part for pair in found.items() for part in pair]
            case b"zset":
                parts += list(raw.zrange(key, 0, -1))
            case b"stream":
                parts.append(repr(raw.xrange(key)).encode())
            case b"string":
                parts.append(raw.get(key))
            case kind:
                raise AssertionError((key, kind))
    return b"\n".join(parts)


@pytest.fixture
def observing(make_memory: Make) -> Any:
    """Make a memory that observes, and one that only stores."""

    def made(scope: Scope, **more: Any) -> tuple[Memory, Memory]:
        embeddings = WordEmbeddings()
        both = {"embeddings": embeddings, "recall": RecallOptions()}
        return make_memory(observations=observed_by(scope, **more), **both), make_memory(**both)

    return made


# -------------------------------------------------------------------- deletion


@each_scope
@pytest.mark.parametrize("by", ["the observing", "another"])
@pytest.mark.parametrize("how", ["delete", "update"])
def test_nothing_is_left_of_messages_that_are_deleted_or_edited(
    observing: Any, raw: redis.Redis, prefix: str, scope: Scope, by: str, how: str
) -> None:
    """Nor of observations that cite them; what these cite beside is raw again."""
    memory, other = observing(scope, model=Echo(together=2))
    talk(memory)
    log = memory.observations.observe("t", resource_id="u")
    assert len(log) == 6
    memory.observations.update(log.observations[3].id, f"says {canary('t', 6)} and {canary('t', 7)}", **IDS)
    memory.observations.delete(log.observations[4].id, **IDS)
    writer = memory if by == "the observing" else other
    if how == "delete":
        assert writer.history.delete(["m6", "m8", "m9"], **IDS) == 3
    else:
        edited = [HumanMessage("please note it", id="m6"), HumanMessage("please note that", id="m8")]
        writer.history.update([*edited, AIMessage("noted", id="m9")], **IDS)
    text = everything(raw, prefix)
    for at in (6, 8, 9):
        assert canary("t", at).encode() not in text
    for at in (0, 5, 10):
        assert text.count(canary("t", at).encode()) > 1  # in the log, too
    found = shown(memory)
    assert len(found["log"]) == 4
    beside = f"noted {canary('t', 7)}"
    assert found["raw"] == ([beside] if how == "delete" else ["please note it", beside, "please note that", "noted"])
    memory.observations.observe("t", resource_id="u")
    assert shown(memory)["raw"] == []


@each_scope
@pytest.mark.parametrize("by", ["the observing", "another"])
@pytest.mark.parametrize("how", ["clear", "delete"])
def test_nothing_is_left_of_threads_that_are_cleared_or_deleted(
    observing: Any, raw: redis.Redis, prefix: str, scope: Scope, by: str, how: str
) -> None:
    memory, other = observing(scope)
    for thread in ("t", "s"):
        talk(memory, thread)
        memory.observations.observe(thread, resource_id="u")
    writer = memory if by == "the observing" else other
    if how == "clear":
        assert writer.history.clear(**IDS) == 14
    else:
        assert writer.threads.delete(**IDS)
    assert b"canarytx" not in everything(raw, prefix)
    assert len([text for text in log_of(memory, "s") if "canarysx" in text]) == 12
    assert not [text for text in log_of(memory) if "canarytx" in text]


@each_scope
@pytest.mark.parametrize("how", ["clear", "delete"])
def test_a_thread_that_begins_again_is_observed_again(observing: Any, scope: Scope, how: str) -> None:
    """What a process knows of the old log is not taken for the new one, whose observations have the same numbers."""
    memory, other = observing(scope)
    for first in (0, 10, 20):
        talk(memory, first=first, turns=3)
        assert len(memory.observations.observe("t", resource_id="u")) == 6
        expected = [
            f"please note {canary('t', at)}" if at % 2 == 0 else f"noted {canary('t', at)}"
            for at in range(2 * first, 2 * first + 6)
        ]
        assert shown(memory) == {"log": expected, "raw": []}
        if how == "clear":
            other.history.clear(**IDS)
        else:
            other.threads.delete(**IDS)


@each_scope
def test_a_truncated_end_is_hidden_and_comes_back_with_its_branch(observing: Any, scope: Scope) -> None:
    memory, other = observing(scope)
    for thread in ("t", "s"):
        talk(memory, thread, turns=3)
        memory.observations.observe(thread, resource_id="u")
    whole = log_of(memory)
    other.history.truncate(after="m3", **IDS)
    gone = {f"please note {canary('t', 4)}", f"noted {canary('t', 5)}"}
    assert log_of(memory) == [text for text in whole if text not in gone]
    assert log_of(memory, "s") == [
        text for text in (whole if scope == "resource" else log_of(memory, "s")) if text not in gone
    ]
    question, answer = (
        HumanMessage(f"please note {canary('t', 4)}", id="m4"),
        AIMessage(f"noted {canary('t', 5)}", id="m5"),
    )
    other.history.append([question, answer], **IDS)
    assert log_of(memory) == whole


@each_scope
def test_what_a_turn_supersedes_is_hidden(observing: Any, scope: Scope) -> None:
    memory, _ = observing(scope)
    talk(memory, turns=3)
    memory.observations.observe("t", resource_id="u")
    edited = [
        HumanMessage(f"please note {canary('t', 0)}"),
        AIMessage(f"noted {canary('t', 1)}"),
        HumanMessage("please note something else"),
    ]
    context = memory.context(edited, **IDS)
    assert context.observations is not None
    assert [one.text for one in context.observations] == [f"please note {canary('t', 0)}", f"noted {canary('t', 1)}"]
    memory.save_turn([*edited, AIMessage("noted otherwise")], **IDS)
    assert [text for text in log_of(memory) if "canary" in text] == [edited[0].content, edited[1].content]


# --------------------------------------------------------- what a model has said


class RefusedError(Exception):
    """What a provider answers that quotes its input."""


@each_scope
@pytest.mark.parametrize("fault", ["uncited", "raised"])
def test_no_error_and_no_warning_quotes_a_message(
    make_memory: Make, raw: redis.Redis, prefix: str, caplog: pytest.LogCaptureFixture, scope: Scope, fault: str
) -> None:
    model = Echo() if fault == "raised" else _Uncited()
    model.failure = RefusedError(f"cannot process {canary('t', 0)}") if fault == "raised" else None
    memory = make_memory(observations=observed_by(scope, model=model))
    talk(memory)
    usage = memory.observations.observe("t", resource_id="u").usage
    assert usage.failures == 3
    assert usage.last_error
    assert ("RefusedError" in usage.last_error) == (fault == "raised")
    assert "canary" not in usage.last_error
    assert caplog.records
    assert "canary" not in caplog.text
    memory.threads.delete(**IDS)
    assert b"canary" not in everything(raw, prefix)


class _Uncited(Echo):
    def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
        result = super()._generate(messages)
        message = result.generations[0].message
        message.content = str(message.content).replace("[1] ", "")
        return result
