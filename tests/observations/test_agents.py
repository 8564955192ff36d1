"""Agents whose older messages are observed: the log in front, then what it does not cover, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._text.said import weight_of
from tests.helpers.models import (
    CONFIG,
    Bench,
    Scripted,
    agent_of,
    ask,
    calling,
    configured,
    handing_over,
    own,
    weather,
)
from tests.observations.noting import Noting, check_shown_once, notes_in, observing, raw_marks, words
from tests.middleware.samples import stored

pytestmark = pytest.mark.in_turn("face")

TURNS = 14


def talk(bench: Bench, memory: Memory, agent: Any, model: Scripted, turns: int, first: int = 0) -> None:
    """Ask and answer; the thread is observed between two turns."""
    for at in range(first, first + turns):
        model.script.append(words(2 * at + 1))
        bench.run(agent, ask(words(2 * at)))
        observe(bench, memory)


def observe(bench: Bench, memory: Memory, thread_id: str = "t") -> Any:
    if bench.face == "sync":
        return memory.observations.observe(thread_id)
    return bench.runner.run(memory.observations.aobserve(thread_id))


def marks(count: int) -> list[str]:
    return [f"mark{at}x" for at in range(count)]


def test_each_message_is_shown_once_as_it_is_or_by_the_log(bench: Bench, saver: InMemorySaver | None) -> None:
    memory = bench.memory(observations=observing(Noting()))
    model = Scripted.says()
    agent = agent_of(model, memory, checkpointer=saver)

    talk(bench, memory, agent, model, TURNS)

    noted = [check_shown_once(seen, marks(2 * at + 1)) for at, seen in enumerate(model.seen)]
    assert noted[-1] > 10
    assert notes_in(model.seen[-1][:1])  # in front of the first message that is shown
    assert all("observations" not in text for text in stored(memory))
    if saver is not None:  # the state keeps all messages as they were said
        state = agent.get_state(CONFIG).values["messages"]
        assert own(state) == state
        assert len(state) == 2 * TURNS


def test_a_turn_begins_with_the_whole_turn_before(bench: Bench, saver: InMemorySaver | None) -> None:
    """Until the log changes, providers find the context of the turn before in their caches."""
    memory = bench.recalling(
        working_memory=WorkingMemoryOptions(),
        observations=observing(Noting(), message_tokens=800, keep_tokens=100, batch_tokens=800),
    )
    model = Scripted.says()
    agent = agent_of(model, memory, checkpointer=saver, system_prompt="You are kind.")

    revisions = []
    for at in range(30):
        model.script.append(words(2 * at + 1))
        bench.run(agent, ask(words(2 * at)))
        if memory.observations.get(thread_id="t").pending_tokens > 800:
            observe(bench, memory)
        revisions.append(memory.observations.get(thread_id="t").revision)

    stable = 0
    for at in range(1, 30):
        before, after = model.seen[at - 1], model.seen[at]
        if at == 1 or revisions[at - 1] == revisions[at - 2]:
            assert after[: len(before) - 1] == before[:-1]
            stable += len(before) > 2
    assert stable > 15
    assert revisions[-1] >= 2


@pytest.mark.parametrize("limits", [{"read_only": True}, {"persist": False}])
def test_what_is_not_saved_is_not_observed(bench: Bench, limits: dict[str, Any]) -> None:
    observer = Noting()
    memory = bench.memory(observations=observing(observer, background=True))
    model = Scripted.says(*(words(at) for at in range(20)))
    agent = agent_of(model, memory, checkpointer=InMemorySaver())

    for at in range(20):
        bench.run(agent, ask(words(100 + at, 60)), configured("t", "ann", memory=limits))
    bench.close()

    assert observer.asked == []
    assert stored(memory) == []
    assert notes_in(model.seen[-1]) == ""
    assert len(raw_marks(model.seen[-1])) == 39


def test_an_agent_in_a_tool_is_not_shown_the_outer_conversation(bench: Bench) -> None:
    memory = bench.memory(observations=observing(Noting()))
    inner_model = Scripted.says("I know")
    inner = agent_of(inner_model, memory)
    model = Scripted.says()
    agent = agent_of(model, memory, tools=[handing_over(bench.face, inner)])
    talk(bench, memory, agent, model, TURNS)

    model.script += [calling(("expert", {"question": "what?"}), id="c"), "so it is"]
    bench.run(agent, ask(words(2 * TURNS)))

    (seen,) = inner_model.seen
    assert [str(message.text) for message in seen] == ["what?"]
    assert "I know" not in stored(memory)
    check_shown_once(model.seen[-2], marks(2 * TURNS + 1))


def test_a_failing_observer_leaves_the_messages_as_they_are(
    bench: Bench, caplog: pytest.LogCaptureFixture, saver: InMemorySaver | None
) -> None:
    observer = Noting(fails=True)
    memory = bench.memory(on_error="log", observations=observing(observer, background=True))
    model = Scripted.says()
    agent = agent_of(model, memory, checkpointer=saver)

    for at in range(TURNS):
        model.script.append(words(2 * at + 1))
        bench.run(agent, ask(words(2 * at)))
    bench.close()

    check_shown_once(model.seen[-1], marks(2 * TURNS - 1))
    assert 1 <= len(observer.asked) <= 3  # then there is a pause; closing ends it earlier
    assert [record.levelname for record in caplog.records if "not asked again" in record.message] == ["WARNING"]


# ---------------------------------------------------------------------- inside one long run


class Work:
    """A tool with results of about 500 tokens, each with a mark of its own."""

    def __init__(self, bench: Bench, memory: Memory, *, observes: bool) -> None:
        self.done = 0

        def look(number: int) -> str:
            """Look at something."""
            self.done += 1
            if observes and bench.face == "sync":
                memory.observations.observe("t")
            return words(1000 + number, 300)

        async def alook(number: int) -> str:
            """Look at something."""
            if observes:
                await memory.observations.aobserve("t")
            self.done += 1
            return words(1000 + number, 300)

        self.tool = tool("look")(look if bench.face == "sync" else alook)


@pytest.mark.parametrize("scope", ["thread", "user"])
def test_a_long_run_stays_within_its_limits(bench: Bench, saver: InMemorySaver | None, scope: str) -> None:
    """60 calls with results of 500 tokens, observed while the agent runs; each is shown once, in whole groups."""
    options = observing(
        Noting(), scope=scope, message_tokens=4_000, keep_tokens=1_000, batch_tokens=1_500, observation_tokens=40_000
    )
    memory = bench.memory(observations=options)
    work = Work(bench, memory, observes=True)
    model = Scripted.says()
    agent = agent_of(model, memory, tools=[work.tool], checkpointer=saver)
    talk(bench, memory, agent, model, 5)

    model.script += [calling(("look", {"number": at}), id=f"c{at}") for at in range(60)]
    model.script.append("done")
    bench.run(agent, ask(words(10)), {**CONFIG, "recursion_limit": 500})

    long = model.seen[5:]
    assert len(long) == 61
    for at, seen in enumerate(long):
        noted = check_shown_once(seen, [*marks(11), *(f"mark{1000 + done}x" for done in range(at))])
        raw = [one for one in own(seen) if not isinstance(one, SystemMessage)]
        assert "mark10x" in raw_marks(seen)
        assert weight_of(raw) < 4_000 + 1_500 + 2 * 550
        assert at < 12 or noted
    assert len(stored(memory)) == 10 + 1 + 60 * 2 + 1


def test_the_observer_works_in_the_background_of_a_long_run(bench: Bench) -> None:
    observer = Noting()
    options = observing(observer, message_tokens=4_000, keep_tokens=1_000, batch_tokens=1_500, background=True)
    memory = bench.memory(observations=options)
    work = Work(bench, memory, observes=False)
    model = Scripted.says(*(calling(("look", {"number": at}), id=f"c{at}") for at in range(60)), "done")
    agent = agent_of(model, memory, tools=[work.tool])

    bench.run(agent, ask(words(0)), {**CONFIG, "recursion_limit": 500})

    for at, seen in enumerate(model.seen):
        check_shown_once(seen, ["mark0x", *(f"mark{1000 + done}x" for done in range(at))])
    assert observer.asked


# ---------------------------------------------------------------------- what it costs


@pytest.mark.parametrize("way", ["run", "stream"])
def test_no_agent_waits_for_the_observer(bench: Bench, way: str) -> None:
    observer = Noting()
    observer.gate.clear()
    memory = bench.memory(observations=observing(observer, background=True))
    model = Scripted.says()
    agent = agent_of(model, memory, tools=[weather])

    for at in range(12):
        model.script += [calling(("weather", {"city": "Rome"}), id=f"c{at}"), words(2 * at + 1)]
        getattr(bench, way)(agent, ask(words(2 * at)))

    assert model.script == []
    check_shown_once(model.seen[-1], marks(23))  # nothing is observed yet
    observer.gate.set()
    bench.close()
    assert observer.asked
