"""Agents with random turns, tools and observing in between: each message reaches the model once, raw or through the log.

A tool observes in the middle of a run as well, as a process in the background would do it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions, ObservationOptions
from langchain_workingmem._text.copies import is_from_memory, without_memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.conversations import accept
from tests.helpers.examples import NIGHTLY
from tests.helpers.models import Bench, Scripted, configured
from tests.observations.checks import words_of
from tests.observations.scripted import CANARY, INSTRUCTIONS, TOKEN, Observer

pytestmark = pytest.mark.in_turn("face")


@dataclass
class Talk:
    """A conversation with an agent: what was said, in order, and what each call of the model must be sent."""

    memory: Any
    ids: dict[str, str]
    scope: str
    said: list[str] = field(default_factory=list)  # canaries
    number: int = 0
    cited: dict[str, set[str]] = field(default_factory=dict)  # word of an observation -> canaries of this thread

    def words(self, length: int) -> str:
        self.number += 1
        canary = f"zq{self.number}x"
        self.said.append(canary)
        return f"{canary} {' '.join(f'word{at}' for at in range(length))} {canary}"

    def log(self) -> Any:
        return self.memory.observations.get(**self.ids if self.scope == "thread" else {"user_id": "ann"})

    def check(self, seen: list[BaseMessage]) -> None:
        """Compare a request with what was said. A run may go on with the log that it began with."""
        accept([message for message in seen if not isinstance(message, SystemMessage)])
        thread, log = self.ids["thread_id"], self.log()
        rows = self.memory.history.page(thread, limit=1000).items
        canaries = {row.message.id: CANARY.findall(words_of(row.message))[0] for row in rows}
        for one in log.observations:
            (token,) = TOKEN.findall(one.text)
            self.cited[token] = {canaries[id] for place, id in one.sources if place == thread}
        whole = " ".join(str(message.text) for message in seen)
        shown = Counter(TOKEN.findall(whole))
        assert not shown or max(shown.values()) == 1, shown
        assert shown.keys() <= self.cited.keys()
        cited = {canary for token in shown for canary in self.cited[token]}
        own = [without_memory(message) for message in seen if not _is_block(message)]
        raw = Counter(canary for message in own for canary in set(CANARY.findall(words_of(message))))
        for canary in self.said:
            wanted = 0 if canary in cited else 1
            assert raw[canary] == wanted, (canary, raw[canary], canary in cited, [words_of(m)[:20] for m in own])
        assert INSTRUCTIONS not in whole
        last = next(message for message in reversed(own) if isinstance(message, HumanMessage))
        assert raw[CANARY.findall(str(last.text))[0]] == 1


def _is_block(message: BaseMessage) -> bool:
    return isinstance(message, SystemMessage) or (is_from_memory(message) and "<observations>" in str(message.text))


@pytest.mark.parametrize("scope", ["thread", "user"])
@pytest.mark.parametrize("seed", range(100 if NIGHTLY else 3))
def test_an_agent_is_shown_each_message_once(
    bench: Bench, saver: InMemorySaver | None, seed: int, scope: Literal["thread", "user"]
) -> None:
    draw = random.Random(f"{seed} {scope}")
    options = ObservationOptions(
        model=Observer(part=draw.choice(["good", "in other clothes"]), has_low=False),
        scope=scope,
        message_tokens=200,
        keep_tokens=60,
        batch_tokens=160,
        observation_tokens=160,
        instructions=INSTRUCTIONS,
        background=False,
        placement=draw.choice([None, "question", "system"]),
    )
    memory: Any = bench.memory(history=HistoryOptions(last_messages=None), observations=options)
    config = configured(f"t{uuid4()}", "ann")
    talk = Talk(memory, {"thread_id": config["configurable"]["thread_id"], "user_id": "ann"}, scope)

    @tool
    def look(word: str, observes: bool) -> str:
        """Look for a word."""
        if observes:
            memory.observations.observe(talk.ids["thread_id"], user_id="ann")
        return talk.words(draw.choice([3, 30, 90]))

    @tool("look")
    async def alook(word: str, observes: bool) -> str:
        """Look for a word."""
        if observes:
            await memory.observations.aobserve(talk.ids["thread_id"], user_id="ann")
        return talk.words(draw.choice([3, 30, 90]))

    model = Scripted.says()
    used = look if bench.face == "sync" else alook
    agent = create_agent(model, [used], middleware=[MemoryMiddleware(memory)], checkpointer=saver)

    def calling(messages: list[BaseMessage]) -> AIMessage:
        talk.check(messages)
        canary = talk.words(0).split()[0]
        calls: list[Any] = [
            {"name": "look", "args": {"word": canary, "observes": draw.random() < 0.5}, "id": f"{canary[2:]}-{at}"}
            for at in range(draw.choice([1, 1, 2]))
        ]
        return AIMessage("", tool_calls=calls)

    def answering(messages: list[BaseMessage]) -> str:
        talk.check(messages)
        return talk.words(draw.choice([5, 40]))

    for _ in range(draw.randint(3, 7)):
        model.script = [*[calling] * draw.choice([0, 0, 1, 4]), answering]
        bench.run(agent, {"messages": [HumanMessage(talk.words(draw.choice([4, 40])))]}, config)
        if draw.random() < 0.5:
            memory.observations.observe(talk.ids["thread_id"], user_id="ann")
