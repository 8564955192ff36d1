"""Where adopting memory, forgetting and retention meet: whole applications, and nothing comes back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.applications.test_backfill import fill, stored
from tests.helpers.canaries import keys_with
from tests.helpers.models import Bench, Scripted, ask, configured, said
from tests.tools.test_forget_messages import ANN, DONE, PIN, SEARCHING, TOOLS, WANTED, agent_with, forgetting, memory_of

TOLD = f"my pin is {PIN}"


def adopted(bench: Bench) -> tuple[Memory, InMemorySaver]:
    """Let an agent without memory talk for three turns, and store its checkpoints."""
    saver = InMemorySaver()
    old = create_agent(Scripted.says("a", "b", "c"), checkpointer=saver)
    for at in range(3):
        bench.run(old, ask(f"q{at} {PIN}", f"q{at}"), ANN)
    memory = memory_of(bench)
    fill(bench, memory, saver)
    return memory, saver


@pytest.mark.parametrize("how", ["ids of the end", "ids of the middle", "until", "all"])
def test_a_backfill_does_not_bring_back_what_was_deleted(bench: Bench, how: str) -> None:
    memory, saver = adopted(bench)
    ids = [one.id or "" for one in memory.history.messages("t")]
    if how == "until":
        memory.history.delete(thread_id="t", until=datetime.now(UTC))
    elif how == "all":
        memory.history.clear("t")
    else:
        memory.history.delete(ids[4:] if "end" in how else ids[2:4], thread_id="t")
    left = stored(memory, "t")
    report = fill(bench, memory, saver)
    assert report.known == 1 if "ids" in how else "or were deleted" in report.left["t"]
    bench.run(create_agent(Scripted.says("d"), checkpointer=saver), ask("without memory"), ANN)
    report = fill(bench, memory, saver)
    assert report.messages == 2 if "middle" in how else "or were deleted" in report.left["t"]
    assert stored(memory, "t") == left + (["human: without memory", "ai: d"] if "middle" in how else [])
    memory.threads.delete("t")
    assert fill(bench, memory, saver).messages == 8  # as the report says


def test_a_backfill_does_not_bring_back_what_was_forgotten(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    memory, saver = adopted(bench)
    agent = agent_with(memory, Scripted.says(SEARCHING, forgetting(), DONE, "fine"), saver=saver)
    bench.run(agent, ask(WANTED), ANN)
    assert fill(bench, memory, saver).known == 1
    bench.run(create_agent(Scripted.says("d"), checkpointer=saver), ask("without memory"), ANN)
    assert [*fill(bench, memory, saver).left] == ["t"]
    bench.run(agent, ask("and now?"), ANN)
    assert stored(memory, "t")[-4:] == ["human: without memory", "ai: d", "human: and now?", "ai: fine"]
    assert keys_with(raw, prefix, PIN) == []


def test_the_older_version_of_a_question_is_forgotten_with_its_answer(
    bench: Bench, raw: redis.Redis, prefix: str
) -> None:
    """No search shows it, so no model can name it."""
    memory = memory_of(bench)
    model = Scripted.says("hi", f"ok {PIN}", f"still {PIN}", SEARCHING, forgetting(), DONE)
    agent = agent_with(memory, model, saver=InMemorySaver())
    for text, id in (("hello", "h"), (TOLD, "q"), ("what did I say?", "q")):
        bench.run(agent, ask(text, id), configured("old", "ann"))
    bench.run(agent, ask(WANTED), ANN)
    assert stored(memory, "old") == ["human: hello", "ai: hi", "human: what did I say?"]
    assert keys_with(raw, prefix, PIN) == []


# ---------------------------------------------------------------------- clients that send the whole conversation, without ids


class Window:
    """A chat that keeps its conversation, and sends all of it each time: to an agent, or as a program does."""

    def __init__(self, bench: Bench, how: str) -> None:
        self.memory, self.model, self.how = memory_of(bench), Scripted.says(), how
        self.agent: Any = create_agent(self.model, middleware=[MemoryMiddleware(self.memory, tools=TOOLS)])
        self.lines: list[str] = []

    def messages(self) -> list[BaseMessage]:
        return [(AIMessage if at % 2 else HumanMessage)(text) for at, text in enumerate(self.lines)]

    def say(self, text: str, *script: Any, chat: str = "t") -> None:
        self.lines.append(text)
        self.answer(*script, chat=chat)

    def answer(self, *script: Any, chat: str = "t") -> None:
        self.model.script[:] = script
        if self.how == "agent":
            self.lines.append(self.post(chat, *self.lines))
            return
        self.memory.context(self.messages(), thread_id=chat, resource_id="maya")
        self.lines.append(script[-1])
        self.memory.save_turn(self.messages(), thread_id=chat, resource_id="maya")

    def post(self, chat: str, *lines: str) -> str:
        messages = [(AIMessage if at % 2 else HumanMessage)(text) for at, text in enumerate(lines)]
        return str(self.agent.invoke({"messages": messages}, configured(chat, "maya"))["messages"][-1].text)

    def forget_elsewhere(self) -> None:
        self.model.script[:] = [SEARCHING, forgetting(), "forgotten"]
        self.post("other", WANTED)


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize("where", ["here", "elsewhere", "as a program"])
def test_a_client_that_sends_it_again_does_not_bring_it_back(
    bench: Bench, raw: redis.Redis, prefix: str, where: str, *, begins: bool
) -> None:
    """What follows is followed as before: asked again, edited, and the same words said anew."""
    window = Window(bench, "program" if "program" in where else "agent")
    memory, say = window.memory, window.say
    if not begins:
        say("hello", "hi")
    say(TOLD, f"ok {PIN}")
    say("cats?", "cats")
    if where == "here":
        say(WANTED, SEARCHING, forgetting(), "forgotten")
    else:
        window.forget_elsewhere()
    front = [*([] if begins else ["human: hello", "ai: hi"]), "human: cats?", "ai: cats"]
    assert stored(memory, "t") == front
    say("and now?", "fine")
    say("and then?", "cats")
    assert stored(memory, "t") == [*front, "human: and now?", "ai: fine", "human: and then?", "ai: cats"]
    window.lines.pop()
    window.answer("dogs")
    assert said(memory.history.messages("t"))[-2:] == ["human: and then?", "ai: dogs"]
    del window.lines[-2:]
    say("edited?", "yes")
    assert keys_with(raw, prefix, PIN) == []
    say(TOLD, "noted again")
    say("thanks", "bye")
    end = ["human: edited?", "ai: yes", f"human: {TOLD}", "ai: noted again", "human: thanks", "ai: bye"]
    assert said(memory.history.messages("t")) == [*front, "human: and now?", "ai: fine", *end]


@pytest.mark.parametrize("how", ["agent", "program"])
@pytest.mark.parametrize("until", ["its second message", "now"])
def test_a_client_that_sends_what_retention_has_deleted_goes_on(bench: Bench, how: str, until: str) -> None:
    window = Window(bench, how)
    for text in ("ants?", "bees?", "cats?"):
        window.say(text, f"yes, {text}")
    rows = window.memory.history.page("t").items
    window.memory.history.delete(thread_id="t", until=datetime.now(UTC) if until == "now" else rows[1].stored_at)
    left = stored(window.memory, "t")
    assert len(left) == (0 if until == "now" else 4)
    for text in ("dogs?", "elks?"):
        window.say(text, f"no {text}")
    assert stored(window.memory, "t") == [*left, "human: dogs?", "ai: no dogs?", "human: elks?", "ai: no elks?"]
