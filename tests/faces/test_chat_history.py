"""A thread as a chat history: what it adds, clears and shows, whose it is, and under RunnableWithMessageHistory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from langchain_core._api.deprecation import LangChainDeprecationWarning
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_workingmem import HistoryOptions, Memory, ThreadOwnershipError
from tests.faces.nodes_samples import Recording, spoken, texts
from tests.helpers.types import Invoke, Make

pytestmark = [
    pytest.mark.in_turn("face"),
    pytest.mark.filterwarnings(
        # the class is deprecated and used everywhere; what it does until it goes is tested here
        f"ignore::{LangChainDeprecationWarning.__module__}.LangChainDeprecationWarning"
    ),
]


def test_a_history_is_read_added_to_and_cleared(plain: Memory, runner: asyncio.Runner | None) -> None:
    history = plain.chat_history("t", "ann")

    def call(name: str, *arguments: Any) -> Any:
        if runner is None:
            return history.messages if name == "get_messages" else getattr(history, name)(*arguments)
        return runner.run(getattr(history, f"a{name}")(*arguments))

    call("add_messages", [HumanMessage("one"), AIMessage("two")])
    call("add_messages", [HumanMessage("three")])
    assert texts(call("get_messages")) == ["one", "two", "three"]
    call("clear")
    assert call("get_messages") == []
    assert [thread.user_id for thread in plain.threads.list()] == ["ann"]


def test_what_is_read_providers_accept(plain: Memory) -> None:
    plain.history.append([HumanMessage("half \ud83d", name="Ann Müller")], thread_id="t", user_id="ann")
    (read,) = plain.chat_history("t", "ann").messages
    assert (read.text, read.name) == ("half ?", "Ann_Muller")


def test_a_session_alone_owns_itself_or_writes_for_its_owner(plain: Memory) -> None:
    plain.threads.create(user_id="ann", thread_id="hers")
    for session, user in (("t", "t"), ("hers", "ann")):
        plain.chat_history(session).add_messages([HumanMessage("one")])
        assert [one.message_count for one in plain.threads.list(user_id=user)] == [1]
    with pytest.raises(ThreadOwnershipError):
        plain.chat_history("hers", "bob").clear()


def on(session: str, **more: str | None) -> dict[str, Any]:
    return {"configurable": {"session_id": session, **more}}


def chain_of(memory: Memory, model: Runnable[Any, Any]) -> Any:
    """A chain with a place of its own for history."""
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be kind."), MessagesPlaceholder("past"), ("human", "{said}")]
    )
    keys = {"input_messages_key": "said", "history_messages_key": "past"}
    return RunnableWithMessageHistory(prompt | model, memory.chat_history, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize(("last", "step", "shown"), [(None, None, 6), (0, 1, 0), (3, 1, 4), (3, 2, 4)])
def test_a_chain_saves_all_and_is_shown_what_the_options_say(
    make_memory: Make, invoke: Invoke, last: int | None, step: int | None, shown: int
) -> None:
    memory, model = make_memory(history=HistoryOptions(last_messages=last, step=step)), Recording()
    chain = chain_of(memory, model)
    said = ["one", "two", "three", "four"]
    for text in said:
        invoke(chain, {"said": text}, on("t"))
    lines = [line for text in said for line in (text, f"re: {text}")]
    assert texts(memory.history.messages("t")) == lines
    assert spoken(model.seen[-1]) == lines[6 - shown : 7]  # never an answer without its question


def test_the_config_names_the_user(plain: Memory, invoke: Invoke) -> None:
    """Of a chain that takes messages: history is put in front of the input, and taken off it again at the end."""
    chain = RunnableWithMessageHistory(Recording(), plain.chat_history, history_factory_config=plain.config_specs)
    for text in ("one", "two"):
        invoke(chain, [HumanMessage(text)], on("t", user_id="ann"))
    assert plain.threads.list(user_id="ann").items[0].message_count == 4


def test_a_run_that_fails_saves_nothing(plain: Memory, invoke: Invoke) -> None:
    def fails(_: Any) -> AIMessage:
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        invoke(chain_of(plain, RunnableLambda(fails)), {"said": "mine"}, on("t"))
    assert plain.history.messages("t") == []


MANY = 20


def all_met() -> Any:
    """A model that answers when every one of the runs has read the history."""
    barrier, count, opened = Barrier(MANY, timeout=30), iter(range(1, MANY + 1)), asyncio.Event()

    def answer(value: Any) -> AIMessage:
        barrier.wait()
        return AIMessage(f"re: {value.to_messages()[-1].text}")

    async def aanswer(value: Any) -> AIMessage:
        if next(count) == MANY:
            opened.set()
        await opened.wait()
        return AIMessage(f"re: {value.to_messages()[-1].text}")

    return RunnableLambda(answer, aanswer)


async def together(chain: Any, values: list[Any]) -> None:
    await asyncio.gather(*(chain.ainvoke(value, on("t")) for value in values))


def test_runs_at_once_save_every_message_exactly_once(plain: Memory, runner: asyncio.Runner | None) -> None:
    before = [HumanMessage(f"old {at}") for at in range(30)]
    plain.save_turn(before, thread_id="t", user_id="t")
    chain, said = chain_of(plain, all_met()), [f"said {at}" for at in range(MANY)]
    values = [{"said": text} for text in said]
    if runner is None:
        with ThreadPoolExecutor(MANY) as pool:
            list(pool.map(lambda value: chain.invoke(value, on("t")), values))
    else:
        runner.run(together(chain, values))
    found = texts(plain.history.messages("t"))
    assert found[:30] == texts(before)
    assert sorted(found[30:]) == sorted([*said, *(f"re: {text}" for text in said)])
    assert all(found[found.index(text) + 1] == f"re: {text}" for text in said)
