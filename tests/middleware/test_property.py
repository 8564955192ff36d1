"""Whatever happens in a conversation: each list the model is sent is acceptable, and all that was said is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, SummarizationMiddleware
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import HistoryOptions, RecallOptions, WorkingMemoryOptions
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.options import DEFAULT_LIMIT
from tests.helpers.conversations import accept
from tests.helpers.examples import examples
from tests.helpers.models import (
    Bench,
    ModelDownError,
    Scripted,
    ask,
    breaks,
    calling,
    configured,
    refuses,
    said,
    weather,
)

pytestmark = pytest.mark.in_turn("face")

RESULTS = {"weather": "sunny in x", "refuses": "no x"}
ARGUMENTS = {"weather": {"city": "x"}, "refuses": {"text": "x"}, "breaks": {"text": "x"}}

_answers = st.sampled_from(["", "fine", "the cat is called Molly", "let me see"])
_questions = st.sampled_from(["hello", "my cat", "is the cat called Molly"])


@dataclass
class Turn:
    """What the user says, which tools the model calls in each step, and how it ends."""

    question: str
    steps: list[tuple[str, list[str]]]  # words and names of tools
    answer: str | None  # None: the model fails
    restart: bool  # the process starts anew, and its checkpointer is empty

    @property
    def is_broken(self) -> bool:
        return any("breaks" in names for _, names in self.steps)


@dataclass
class Script:
    """A conversation, and how the agent is made."""

    turns: list[Turn]
    checkpointer: bool
    summaries: bool
    memory_first: bool
    numbered_anew: bool  # the ids of tool calls begin at 0 in each answer, as those of some providers do
    history: HistoryOptions


_turns = st.builds(
    Turn,
    _questions,
    st.lists(
        st.tuples(
            _answers, st.lists(st.sampled_from(["weather", "weather", "refuses", "breaks"]), min_size=1, max_size=3)
        ),
        max_size=3,
    ),
    st.one_of(_answers, _answers, st.none()),
    st.booleans(),
)
scripts = st.builds(
    Script,
    st.lists(_turns, min_size=1, max_size=5),
    st.booleans(),
    st.sampled_from([False, False, True]),
    st.booleans(),
    st.booleans(),
    st.just(HistoryOptions(last_messages=None))
    | st.builds(
        HistoryOptions,
        last_messages=st.sampled_from([None, 0, 1, 2, 3, 5, 10]),
        max_tokens=st.sampled_from([None, None, 12]),
        exclude_tools=st.sampled_from([False, False, True, ["weather"]]),
    ),
)


def lines_of(script: Script, at: int, turn: Turn) -> tuple[list[Any], list[str]]:
    """Return what the model says in a turn, and what the conversation gains by it."""
    lines: list[Any] = []
    gained = [f"human: {turn.question}"]
    for step, (words, names) in enumerate(turn.steps):
        id = f"{at}.{step}"
        answer = calling(*((name, ARGUMENTS[name]) for name in names), id=id, text=words)
        for number, call in enumerate(answer.tool_calls):
            call["id"] = f"call_{number}" if script.numbered_anew else call["id"]
        lines.append(answer)
        gained += said([answer])
        if "breaks" in names:
            return lines, gained
        gained += [f"tool: {RESULTS[name]}" for name in names]
    if turn.answer is None:
        return [*lines, ModelDownError("down")], gained
    return [*lines, AIMessage(turn.answer, id=f"{at}.end")], [*gained, f"ai: {turn.answer}"]


def check_sent(sent: list[BaseMessage], script: Script, before: list[BaseMessage], gained: list[str]) -> None:
    """Check one list that the model was sent."""
    accept(sent)
    assert [message for message in sent if isinstance(message, SystemMessage)] == sent[:1]
    shown = said(sent[1:])
    if script.summaries:
        return  # a summary may stand for any of the messages
    start = len(shown) - 1 - shown[::-1].index(gained[0])
    present = shown[start:]
    assert present[0] == gained[0]
    rest, parts = present[1:], range(1, len(gained))
    if script.history.max_tokens in (
        None,
        DEFAULT_LIMIT,
    ):  # a limit that a program names gives up the oldest finished calls of the running turn
        parts = range(1, 2)
    assert not rest or any(rest == gained[at : at + len(rest)] for at in parts)
    if script.history == HistoryOptions(last_messages=None):
        assert shown == said(provider_valid([*before, *sent[1 + start :]]))


# two tools fail side by side, after a summary has taken what came before
LOST = [("", ["refuses"]), ("", ["weather", "refuses"]), ("the cat is called Molly", ["breaks", "breaks"])]


@given(scripts)
@example(Script([Turn("hi", LOST, "fine", False)], True, True, True, True, HistoryOptions(last_messages=1)))
@examples(20, server=True)
def test_whatever_happens_lists_are_acceptable_and_the_thread_is_the_conversation(bench: Bench, script: Script) -> None:
    memory = bench.recalling(
        recall=RecallOptions(top_k=2, message_range=1),
        working_memory=WorkingMemoryOptions(template=""),
        history=script.history,
    )
    config, saver = configured(f"t{uuid4()}", f"u{uuid4()}"), InMemorySaver()
    model = Scripted.says()
    expected: list[str] = []
    for at, turn in enumerate(script.turns):
        if turn.restart:
            saver = InMemorySaver()
        middleware: list[AgentMiddleware[Any, Any]] = [MemoryMiddleware(memory)]
        if script.summaries:
            summarizer = Scripted.says(*["in short"] * 9)
            summary = SummarizationMiddleware(summarizer, trigger=("messages", 4), keep=("messages", 2))
            middleware.insert(int(script.memory_first), summary)
        agent = create_agent(
            model,
            [weather, refuses, breaks],
            system_prompt="be kind",
            middleware=middleware,
            checkpointer=saver if script.checkpointer else None,
        )
        model.script, gained = lines_of(script, at, turn)
        model.seen.clear()
        before = memory.history.messages(config["configurable"]["thread_id"])
        if turn.is_broken or turn.answer is None:
            with pytest.raises((RuntimeError, ModelDownError)):
                bench.run(agent, ask(turn.question), config)
        else:
            bench.run(agent, ask(turn.question), config)
        assert model.script == []
        for sent in model.seen:
            check_sent(sent, script, before, gained)
        expected += gained
        stored = memory.history.messages(config["configurable"]["thread_id"])
        assert said(stored) == expected
