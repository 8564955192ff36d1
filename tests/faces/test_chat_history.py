"""A thread as a chat history by itself: what it adds, clears and shows, and whose it is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import HistoryOptions, IdError, Memory, ThreadOwnershipError
from tests.faces.nodes_samples import texts
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


def test_messages_come_back_in_order(plain: Memory, of: Callable[..., Face]) -> None:
    history = of(plain.chat_history("t"))
    history.add(HumanMessage("one"), AIMessage("two"))
    history.add(HumanMessage("three"))
    assert texts(history.read()) == ["one", "two", "three"]


def test_clearing_leaves_an_empty_thread_with_its_owner(plain: Memory, of: Callable[..., Face]) -> None:
    history = of(plain.chat_history("t", "ann"))
    history.add(HumanMessage("one"))
    history.clear()
    assert history.read() == []
    thread = plain.threads.get("t")
    assert thread is not None
    assert thread.user_id == "ann"


@pytest.mark.parametrize(
    ("last", "step", "shown"),
    [(None, None, 6), (0, None, 0), (4, None, 6), (3, 2, 4)],
)
def test_the_view_is_that_of_the_options(
    make_memory: Make, of: Callable[..., Face], last: int | None, step: int | None, shown: int
) -> None:
    history = of(make_memory(history=HistoryOptions(last_messages=last, step=step)).chat_history("t"))
    words = [f"m{at}" for at in range(6)]
    history.add(*(HumanMessage(word) for word in words))
    assert texts(history.read()) == words[6 - shown :]


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
