"""What a turn with a log says of the present: the day at the question, the user's zone, the names of conversations."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Ids, Memory, MemoryContext, OptionError
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.observations import observe_now
from tests.helpers.models import Bench, Scripted, ask, configured
from tests.observations.noting import Noting, notes_in, observing, words
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}
LATE = datetime(2026, 11, 24, 16, 30, tzinfo=UTC)  # in Tokyo it is Wednesday
QUESTION = "And now?"


def live(memory: Memory, turns: int = 8, *, thread: str = "t", first: int = 0) -> Memory:
    for at in range(first, first + 2 * turns, 2):
        turn = [HumanMessage(words(at)), AIMessage(words(at + 1))]
        memory.save_turn(turn, thread_id=thread, user_id="ann")
    memory.observations.observe(thread, user_id="ann")
    return memory


def asked(memory: Memory, **more: Any) -> MemoryContext:
    return memory.context(QUESTION, **{**IDS, "now": LATE, **more})


def test_the_day_stands_at_the_question_and_not_in_the_log(make_memory: Make) -> None:
    memory = live(make_memory(observations=observing(Noting())))
    context = asked(memory)
    assert context.messages[-1].text == (f"<today>Today is Tuesday, 2026-11-24 (time zone UTC).</today>\n\n{QUESTION}")
    assert "Tuesday" not in notes_in(context.messages)
    later = asked(memory, now=LATE.replace(year=2027))
    assert [one.text for one in later.messages[:-1]] == [one.text for one in context.messages[:-1]]
    assert "Wednesday, 2027-11-24" in later.messages[-1].text


def test_the_day_and_the_log_are_those_of_the_zone_of_the_user(make_memory: Make) -> None:
    memory = live(make_memory(observations=observing(Noting()), timezone="Asia/Tokyo"))
    context = asked(memory)
    assert "Today is Wednesday, 2026-11-25 (time zone Asia/Tokyo)." in context.messages[-1].text
    assert "times in Asia/Tokyo, " in notes_in(context.messages)


@pytest.mark.parametrize("scope", ["thread", "user"])
def test_observer_and_reflector_read_the_times_of_the_user(make_memory: Make, scope: Any) -> None:
    """A message of the night is of another day there, and the observer works out "yesterday" from its day."""
    model, asked_for = Noting(), list[Ids]()

    def zone_of(ids: Ids) -> str:
        asked_for.append(ids)
        return "Pacific/Kiritimati"

    options = observing(model, scope=scope, observation_tokens=20)
    memory = make_memory(observations=options, timezone=zone_of)
    live(memory, 8)
    prompts = [str(messages[1].text) for messages in model.asked]
    assert {found[1] for found in re.finditer(r'time="[^"]{16} (.*?)"', "".join(prompts))} == {"Pacific/Kiritimati"}
    first = memory.observations.get(thread_id="t", user_id="ann").observations[0]
    here = first.said_at.astimezone(ZoneInfo("Pacific/Kiritimati"))
    assert f'<message n="1" role="user" time="{here:%Y-%m-%d %H:%M} ' in prompts[0]
    assert any("<observation n=" in prompt for prompt in prompts)
    assert {*asked_for} == {Ids("t", "ann")}


def test_an_agent_sees_the_day_once_in_each_step_and_nothing_of_it_is_stored(bench: Bench) -> None:
    memory = live(bench.memory(observations=observing(Noting())))
    model = Scripted.says("a", "b")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory, name="team")])
    for _ in range(2):
        bench.run(agent, ask(QUESTION), configured("t", "ann"))
    for seen in model.seen:
        tagged = [str(message.text) for message in seen if "<today" in str(message.text)]
        assert len(tagged) == 1
        assert '<today name="team">Today is ' in tagged[0]
        assert tagged[0].endswith(QUESTION)
    assert "<today" not in str(memory.history.messages("t"))


# ---------------------------------------------------------------------- names of conversations


@pytest.fixture
def shared(make_memory: Make) -> Memory:
    """A user with lines of two conversations, "rome" before "tax"."""
    memory = make_memory(observations=observing(Noting(), scope="user", keep_tokens=0, message_tokens=60))
    live(memory, 3, thread="rome")
    return memory


def headings(memory: Memory, thread: str = "new") -> list[str]:
    context = memory.context(QUESTION, thread_id=thread, user_id="ann")
    return [line.partition(" ")[2] for line in notes_in(context.messages).split("\n") if line.startswith("20")]


def test_the_log_of_a_user_names_the_conversations_of_its_lines(shared: Memory) -> None:
    assert headings(shared) == [""]
    live(shared, 3, thread="tax", first=50)
    both = ["", "(conversation B; the lines above: conversation A)"]
    assert [headings(shared, thread) for thread in ("new", "rome", "tax")] == [both, both, both]


@pytest.mark.parametrize("reader", ["the same process", "another process"])
def test_a_title_is_shown_from_the_next_turn_on(shared: Memory, make_memory: Make, reader: str) -> None:
    live(shared, 3, thread="tax", first=50)
    other = shared if reader == "the same process" else make_memory(observations=shared._core.state.observations)
    headings(other)
    for title in ("Rome", "Roma <1>", None):
        shared.threads.update("rome", title=title, user_id="ann")
        shown = f'conversation "{title.replace("<", "&lt;").replace(">", "&gt;")}"' if title else "conversation A"
        for thread in ("new", "rome", "tax"):
            assert headings(other, thread) == ["", f"(conversation B; the lines above: {shown})"]


def test_a_line_at_the_end_changes_nothing_before_it(shared: Memory) -> None:
    """Whichever conversation it comes from."""
    core, shown = shared._core, ""
    for at, thread in enumerate(["rome", "tax", "rome", "tax", "garden"]):
        live(shared, 2, thread=thread, first=100 + 10 * at)
        core.run(observe_now(core.state, thread, "ann", is_newest=False))
        log = notes_in(shared.context(QUESTION, thread_id="new", user_id="ann").messages)
        assert log.startswith(shown)
        assert len(log) > len(shown)
        shown = log.removesuffix("</observations>")
    assert shown.count("(conversation") == 4


@pytest.mark.parametrize("scope", ["thread", "user"])
def test_an_observer_whose_users_have_no_zone_gives_its_lease_back(
    make_memory: Make, scope: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A function that raises in the background is named in the log, and the next process need not wait."""
    zones: dict[str, str] = {}
    options = observing(Noting(), scope=scope, background=True)
    memory = make_memory(observations=options, timezone=lambda ids: zones[ids.user_id or ""])
    for at in range(6):
        memory.save_turn([HumanMessage(words(2 * at)), AIMessage(words(2 * at + 1))], thread_id="t", user_id="ann")
    memory.settled()
    assert "the function passed as timezone raised KeyError" in caplog.text
    with pytest.raises(OptionError, match="raised KeyError"):
        memory.context("and?", thread_id="t", user_id="ann")
    zones["ann"] = "Asia/Tokyo"
    caplog.clear()
    assert make_memory(observations=options).observations.observe("t", user_id="ann").observations
    assert not caplog.text  # nobody waited
