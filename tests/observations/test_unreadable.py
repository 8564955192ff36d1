"""Observers that stumble over single messages, and such that never quite keep the form: they never block what others can read."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import log2
from typing import Any

import pytest
import redis
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_workingmem import Memory
from langchain_workingmem.observations import reflecting
from langchain_workingmem.options import Scope
from tests.helpers.examples import sample
from tests.observations.noting import MARK, Noting, observing, words
from tests.helpers.types import Make

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
POISON = "mark34x", "mark71x"  # a question and an answer
TURNS = 60


class StatusError(Exception):
    """An error of a provider with a status."""

    def __init__(self, status: int, text: str = "no") -> None:
        super().__init__(text)
        self.status_code = status


def _raises(error: Exception) -> Callable[[str], AIMessage]:
    def answer(_: str) -> AIMessage:
        raise error

    return answer


def _says(text: str, **metadata: Any) -> Callable[[str], AIMessage]:
    return lambda good: AIMessage(text.replace("GOOD", good), response_metadata=metadata)


def _without_numbers(good: str) -> AIMessage:
    first, *lines = good.split("\n")
    return AIMessage("\n".join([first, *lines[:-1], re.sub(r"\[\d+\] ", "", lines[-1])] if len(lines) > 1 else [good]))


# what a model does when it reads one of POISON
POISONED: dict[str, Callable[[str], AIMessage]] = {
    "bad request": _raises(StatusError(400, "The response was filtered")),
    "not processable": _raises(StatusError(422)),
    "too large": _raises(StatusError(413)),
    "a filter without a status": _raises(OutputParserException("content_filter: the prompt was blocked")),
    "stopped by a filter": _says("GOOD", finish_reason="content_filter"),
    "refused by its provider": _says("GOOD", stop_reason="refusal"),
    "cut off": _says("GOOD", finish_reason="length"),
    "refusing": _says("I'm sorry, but I can't help with that."),
    "empty": _says(""),
    "blank": _says(" \n\n"),
    "garbage": _says("Turtles and so on.\nNothing of this is a line."),
    "citing nothing": _says("- A line.\n- [] Another line."),
    "citing what it was not given": _says("GOOD\n- [999] More."),
    "citing zero": _says("- [0] A line."),
    "repeating": _says("- [1] again\n" * 80),
    "too long": _says("- [1] " + " ".join(f"word{at}" for at in range(5000))),
}
OUTAGES = {f"status {status}": _raises(StatusError(status)) for status in (401, 403, 429, 500, 503)} | {
    "too slow": _raises(TimeoutError("no answer")),
    "no connection": _raises(ConnectionError("refused")),
}
# what it always does
ALWAYS: dict[str, Callable[[str], AIMessage]] = {
    "chatty": _says("Sure! Here are the notes.\nGOOD\n\nLet me know if I should write more."),
    "chattier": _says("GOOD\n\nThese are all of the notes.\nIs there anything else?\nI am glad to help."),
    "forgetful": _without_numbers,
}


class Stumbling(Noting):
    """Notes marks as `Noting` does, but for what its kind says."""

    kind: str
    poison: tuple[str, ...] = POISON
    wasted: int = 0
    largest: int = 1  # messages of a call with poison

    def _generate(self, messages: list[BaseMessage], *rest: Any, **more: Any) -> ChatResult:
        shown = re.sub(r"<known>.*?</known>", "", str(messages[1].text), flags=re.DOTALL)
        good = str(super()._generate(messages, *rest, **more).generations[0].message.text)
        is_poisoned = any(mark in shown for mark in self.poison)
        if is_poisoned and (plays := POISONED.get(self.kind) or OUTAGES.get(self.kind)):
            self.wasted += 1
            self.largest = max(self.largest, shown.count("<message "))
            answer = plays(good)
        elif self.kind == "empty each third time":
            answer = AIMessage("" if len(self.asked) % 3 == 0 else good)
        else:
            answer = ALWAYS.get(self.kind, _says("GOOD"))(good)
        return ChatResult(generations=[ChatGeneration(message=answer)])


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflecting, "FIRST_WAIT", 0.0)


def talk(memory: Memory, turns: int = TURNS) -> None:
    for at in range(0, 2 * turns, 2):
        memory.save_turn([HumanMessage(words(at), id=f"m{at}"), AIMessage(words(at + 1), id=f"m{at + 1}")], **IDS)
        memory.settled()


KINDS = [*POISONED, *ALWAYS, "empty each third time"]


@pytest.mark.in_turn("scope")
@pytest.mark.parametrize("kind", sample(KINDS, 7))
@pytest.mark.parametrize("scope", ["thread", "user"])
def test_all_that_can_be_read_is_observed_and_the_log_says_what_cannot(
    make_memory: Make, raw: redis.Redis, prefix: str, kind: str, scope: Scope
) -> None:
    assert len(KINDS) == 20
    observer = Stumbling(kind=kind)
    memory = make_memory(observations=observing(observer, scope=scope, background=True, message_tokens=800))
    talk(memory)
    log = memory.observations.get(**IDS)
    assert log.pending_tokens < 800
    cited = {id for one in log for _, id in one.sources}
    raw_ids = {str(message.id) for message in memory.context([HumanMessage("hm")], **IDS).messages}
    assert all((f"m{at}" in cited) or (f"m{at}" in raw_ids) or kind == "forgetful" for at in range(2 * TURNS))
    passed_over = [one for one in log if one.text.startswith("Not noted")]
    if kind in POISONED:
        assert [id for one in passed_over for _, id in one.sources] == ["m34", "m71"]
        assert observer.wasted <= len(POISON) * (3 + 3 * log2(observer.largest))
        assert not any(MARK.search(one.text) for one in passed_over)
        found = memory.observations.sources(passed_over[0].id, **IDS)
        assert "mark34x" in "".join(hit.message.text for hit in found.hits)
        assert log.usage.failures == observer.wasted
    else:
        assert not passed_over
    assert not raw.hexists(f"{prefix}:observations:t:{{t}}", "tried")


@pytest.mark.parametrize("kind", sample([*OUTAGES], 3))
def test_an_outage_counts_against_no_message(make_memory: Make, raw: redis.Redis, prefix: str, kind: str) -> None:
    """It pauses, and afterwards all is observed in one call."""
    observer = Stumbling(kind=kind, poison=("mark",))
    memory = make_memory(observations=observing(observer, background=True, message_tokens=800, batch_tokens=10_000))
    talk(memory, 30)
    assert len(observer.asked) == 3
    log = f"{prefix}:observations:t:{{t}}"
    assert raw.hget(log, "pause_until")
    assert not raw.hexists(log, "tried")
    observer.kind = "good"
    assert not any("Not noted" in one.text for one in memory.observations.observe("t"))
    assert len(observer.asked) == 4


def test_a_model_that_fails_with_everything_pauses_and_covers_nothing(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    """It is asked about one range in each run. When it answers again, nothing counts against a message."""
    observer = Stumbling(kind="refusing", poison=("mark",))
    memory = make_memory(observations=observing(observer, background=True, message_tokens=800))
    talk(memory, 40)
    assert not memory.observations.get(**IDS).observations
    assert len(observer.asked) <= 12
    assert raw.hget(f"{prefix}:observations:t:{{t}}", "pause_until")
    observer.kind = "good"
    log = memory.observations.observe("t")
    assert not any("Not noted" in one.text for one in log)
    assert log.pending_tokens < 200
