"""A thread as a chat history by itself: what it adds, clears and shows, and whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import HistoryOptions, IdError, Memory, ThreadOwnershipError
from tests.faces.nodes_samples import texts
from tests.helpers.conversations import ai, result
from tests.helpers.types import Make

pytestmark = pytest.mark.in_turn("face")


class Face:
    """A chat history by its sync or its async methods."""

    def __init__(self, history: BaseChatMessageHistory, runner: asyncio.Runner | None) -> None:
        self.history = history
        self._runner = runner

    def read(self) -> list[BaseMessage]:
        if self._runner is None:
            return self.history.messages
        return self._runner.run(self.history.aget_messages())

    def add(self, *messages: BaseMessage) -> None:
        if self._runner is None:
            self.history.add_messages(messages)
        else:
            self._runner.run(self.history.aadd_messages(messages))

    def clear(self) -> None:
        if self._runner is None:
            self.history.clear()
        else:
            self._runner.run(self.history.aclear())


@pytest.fixture
def of(face: str, loop_runner: asyncio.Runner) -> Callable[[BaseChatMessageHistory], Face]:
    return lambda history: Face(history, None if face == "sync" else loop_runner)


# ---------------------------------------------------------------------- the contract


def test_it_is_langchains_chat_history(plain: Memory) -> None:
    assert isinstance(plain.chat_history("t"), BaseChatMessageHistory)


def test_a_new_session_is_empty(plain: Memory, of: Callable[..., Face]) -> None:
    assert of(plain.chat_history("t")).read() == []


def test_messages_come_back_in_order(plain: Memory, of: Callable[..., Face]) -> None:
    history = of(plain.chat_history("t"))
    history.add(HumanMessage("one"), AIMessage("two"))
    history.add(HumanMessage("three"))
    assert texts(history.read()) == ["one", "two", "three"]


def test_the_single_adders_add(plain: Memory) -> None:
    history = plain.chat_history("t")
    history.add_user_message("one")
    history.add_ai_message("two")
    history.add_message(HumanMessage("three"))
    assert [(message.type, message.text) for message in history.messages] == [
        ("human", "one"),
        ("ai", "two"),
        ("human", "three"),
    ]


def test_adding_the_same_message_again_changes_nothing(plain: Memory, of: Callable[..., Face]) -> None:
    history, message = of(plain.chat_history("t")), HumanMessage("one")
    history.add(message)
    history.add(message)
    assert texts(history.read()) == ["one"]


def test_adding_nothing_is_fine(plain: Memory, of: Callable[..., Face]) -> None:
    history = of(plain.chat_history("t"))
    history.add()
    assert history.read() == []


def test_clearing_leaves_an_empty_thread_with_its_owner(plain: Memory, of: Callable[..., Face]) -> None:
    history = of(plain.chat_history("t", "ann"))
    history.add(HumanMessage("one"))
    history.clear()
    assert history.read() == []
    thread = plain.threads.get("t")
    assert thread is not None
    assert thread.user_id == "ann"


def test_clearing_an_unknown_session_is_fine(plain: Memory, of: Callable[..., Face]) -> None:
    of(plain.chat_history("nobody")).clear()
    assert plain.threads.get("nobody") is None


def test_two_objects_of_a_session_see_the_same(plain: Memory, of: Callable[..., Face]) -> None:
    of(plain.chat_history("t")).add(HumanMessage("one"))
    assert texts(of(plain.chat_history("t")).read()) == ["one"]


def test_tool_calls_survive(plain: Memory, of: Callable[..., Face]) -> None:
    history, turn = of(plain.chat_history("t")), [HumanMessage("x"), ai("", "a", "b"), result("a"), result("b")]
    history.add(*turn)
    assert history.read() == turn


def test_an_open_tool_call_is_shown_when_its_result_is_there(plain: Memory, of: Callable[..., Face]) -> None:
    history, call, answer = of(plain.chat_history("t")), ai("", "a"), result("a")
    history.add(HumanMessage("x"), call)
    assert texts(history.read()) == ["x"]
    history.add(answer)
    assert history.read()[1:] == [call, answer]


@pytest.mark.parametrize(
    ("last", "step", "shown"),
    [(None, None, 6), (0, None, 0), (1, None, 1), (4, None, 6), (4, 1, 4), (4, 2, 4), (3, 2, 4), (99, None, 6)],
)
def test_the_view_is_that_of_the_options(
    make_memory: Make, of: Callable[..., Face], last: int | None, step: int | None, shown: int
) -> None:
    history = of(make_memory(history=HistoryOptions(last_messages=last, step=step)).chat_history("t"))
    words = [f"m{at}" for at in range(6)]
    history.add(*(HumanMessage(word) for word in words))
    assert texts(history.read()) == words[6 - shown :]


def test_the_view_starts_with_no_tool_result(make_memory: Make, of: Callable[..., Face]) -> None:
    memory = make_memory(history=HistoryOptions(last_messages=2))
    history = of(memory.chat_history("t"))
    history.add(HumanMessage("x"), ai("", "a"), result("a"), AIMessage("y"))
    assert not isinstance(history.read()[0], ToolMessage)
    assert len(memory.history.messages("t")) == 4


# ---------------------------------------------------------------------- owners


def test_a_new_session_owns_itself(plain: Memory, of: Callable[..., Face]) -> None:
    of(plain.chat_history("t")).add(HumanMessage("one"))
    assert plain.threads.list(user_id="t").total == 1


def test_a_session_alone_writes_for_its_owner(plain: Memory, of: Callable[..., Face]) -> None:
    plain.threads.create(user_id="ann", thread_id="t")
    of(plain.chat_history("t")).add(HumanMessage("one"))
    assert plain.threads.list(user_id="ann").items[0].message_count == 1


@pytest.mark.parametrize("action", ["read", "add", "clear"])
def test_somebody_elses_session_is_refused(plain: Memory, of: Callable[..., Face], action: str) -> None:
    plain.save_turn([HumanMessage("mine")], thread_id="t", user_id="ann")
    thief = of(plain.chat_history("t", "bob"))
    arguments = [HumanMessage("x")] if action == "add" else []
    with pytest.raises(ThreadOwnershipError):
        getattr(thief, action)(*arguments)
    assert texts(plain.history.messages("t")) == ["mine"]


@pytest.mark.parametrize(("session", "user"), [("", "ann"), ("t", ""), ("a\0", "ann")])
def test_ids_are_checked_at_once(plain: Memory, session: str, user: str) -> None:
    with pytest.raises(IdError):
        plain.chat_history(session, user)
