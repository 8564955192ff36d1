"""A long log of a user is condensed thread by thread, so that no line tells of two: what is deleted in one stays nowhere."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from langchain_workingmem import ObservationOptions
from langchain_workingmem.options import Scope
from tests.observations.observers import Echo, elements
from tests.helpers.types import Make

IDS: Any = {"user_id": "maya"}
THREADS = ("sea", "land")


def stored(raw: redis.Redis, prefix: str) -> bytes:
    """Return all that hashes hold."""
    found: Any = raw
    hashes = (key for key in found.scan_iter(f"{prefix}:*") if found.type(key) == b"hash")
    return b"".join(b"".join(found.hgetall(key).values()) for key in hashes)


@pytest.mark.parametrize("deleted", THREADS)
def test_words_of_a_deleted_message_are_in_no_condensed_line(
    make_memory: Make, raw: redis.Redis, prefix: str, deleted: str
) -> None:
    options = ObservationOptions(
        model=Echo(), scope="user", message_tokens=10_000, keep_tokens=0, observation_tokens=8, background=False
    )
    memory = make_memory(observations=options)
    for thread in THREADS:
        first = [HumanMessage(f"secret{thread} is what I say", id=f"q{thread}"), AIMessage("noted", id=f"a{thread}")]
        memory.history.append(first, thread_id=thread, **IDS)
        memory.history.append([HumanMessage("is that all?"), AIMessage("it is")], thread_id=thread, **IDS)
    for thread in THREADS:
        memory.observations.observe(thread, **IDS)
    lines = memory.observations.get(**IDS).observations
    assert all(len({thread for thread, _ in one.sources}) == 1 for one in lines)
    assert {one.sources[0][0] for one in lines if one.level} == {*THREADS}
    memory.history.delete([f"q{deleted}"], thread_id=deleted, **IDS)
    assert f"secret{deleted}".encode() not in stored(raw, prefix)
    (other,) = {*THREADS} - {deleted}
    assert any(f"secret{other}" in one.text for one in memory.observations.get(**IDS))


class _Signing(Echo):
    """Writes a line for each message, with the sign that the message begins with; notes what the reflector is shown."""

    shown: list[str] = Field(default_factory=list)
    system: str = ""

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.calls += 1
        found = elements(messages)
        if found[0][0] == "observation":
            self.system = str(messages[0].content)
            self.shown += [text for *_, text in found]
            text = f"- [{','.join(str(number) for _, number, _ in found)}] joined"
        else:
            text = "\n".join(f"{text[0]} [{number}] {text[2:]}" for _, number, text in found)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


def signed(make_memory: Make, model: _Signing, scope: Scope, *said: str, most: int) -> list[tuple[str, str]]:
    options = ObservationOptions(
        model=model, scope=scope, message_tokens=10_000, keep_tokens=0, observation_tokens=most, background=False
    )
    memory = make_memory(observations=options)
    rows = [(AIMessage if at % 2 else HumanMessage)(text, id=f"m{at}") for at, text in enumerate(said)]
    memory.history.append([*rows, HumanMessage("is that all?"), AIMessage("it is")], thread_id="t", **IDS)
    memory.observations.observe("t", **IDS)
    ids = IDS if scope == "user" else {"thread_id": "t"}
    log = memory.observations.get(**ids)
    assert memory.context("and now?", thread_id="t", **IDS).messages[-2].text == "it is"
    shown = {str(one.id) for one in memory.context("and now?", thread_id="t", **IDS).messages}
    assert not shown & {f"m{at}" for at in range(len(said))}  # what is left out stays covered
    return [(one.priority, one.text) for one in log]


@pytest.mark.parametrize("scope", ["thread", "user"])
def test_low_lines_are_left_out_first_and_without_a_model(make_memory: Make, scope: Scope) -> None:
    model = _Signing()
    low = [f"~ small talk {at} {'word ' * 20}" for at in range(4)]
    found = signed(make_memory, model, scope, "! allergic to nuts", *low, "- books hut 12", most=60)
    assert found == [("high", "allergic to nuts"), ("normal", "books hut 12")]
    assert (model.calls, model.shown) == (1, [])


@pytest.mark.parametrize("scope", ["thread", "user"])
def test_high_lines_are_never_rewritten(make_memory: Make, scope: Scope) -> None:
    model = _Signing()
    notes = [f"- hut {at} {'word ' * 20}" for at in range(4)]
    found = signed(make_memory, model, scope, "! allergic to nuts", *notes, "! vegetarian", most=70)
    assert found == [("high", "allergic to nuts"), ("normal", "joined"), ("high", "vegetarian")]
    assert not any("allergic" in text for text in model.shown)


def test_a_log_of_high_lines_costs_no_call_of_the_reflector(make_memory: Make) -> None:
    model = _Signing()
    found = signed(make_memory, model, "thread", *(f"! rule {at} {'word ' * 20}" for at in range(6)), most=70)
    assert len(found) == 6
    assert model.calls == 1
