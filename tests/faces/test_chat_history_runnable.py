"""A thread as a chat history under RunnableWithMessageHistory, alone and with others at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from langchain_core._api.deprecation import LangChainDeprecationWarning
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_workingmem import HistoryOptions, Memory, ThreadOwnershipError
from langchain_workingmem.faces.runnables import RedisChatMessageHistory
from tests.faces.nodes_samples import Recording, spoken, texts
from tests.helpers.types import Make

Drive = Callable[[Any, str], Any]

pytestmark = [
    pytest.mark.in_turn("face"),
    pytest.mark.filterwarnings(
        # the class is deprecated and used everywhere; what it does until it goes is tested here
        f"ignore::{LangChainDeprecationWarning.__module__}.LangChainDeprecationWarning"
    ),
]


# ---------------------------------------------------------------------- RunnableWithMessageHistory


def on(session: str, **more: str | None) -> dict[str, Any]:
    return {"configurable": {"session_id": session, **more}}


def by_session(memory: Memory) -> Callable[[str], RedisChatMessageHistory]:
    """A factory of one argument, as LangChain's tutorials have it."""

    def make(session_id: str) -> RedisChatMessageHistory:
        return memory.chat_history(session_id)

    return make


def bare(memory: Memory, model: Runnable[Any, Any], factory: Any = None) -> Any:
    """A chain that takes messages: history is put in front of the input, and taken off it again at the end."""
    return RunnableWithMessageHistory(model, factory or by_session(memory))


def keyed(memory: Memory, model: Runnable[Any, Any], factory: Any = None) -> Any:
    """A chain with a place of its own for history."""
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be kind."), MessagesPlaceholder("past"), ("human", "{said}")]
    )
    return RunnableWithMessageHistory(
        prompt | model,
        factory or by_session(memory),
        input_messages_key="said",
        history_messages_key="past",
    )


def input_keyed(memory: Memory, model: Runnable[Any, Any], factory: Any = None) -> Any:
    """A chain whose input is a dict with messages."""
    chain: Runnable[Any, Any] = RunnableLambda(lambda value: value["said"]) | model
    factory = factory or by_session(memory)
    return RunnableWithMessageHistory(chain, factory, input_messages_key="said")


def given(build: Any, text: str) -> Any:
    return [HumanMessage(text)] if build is bare else {"said": text}


CHAINS = pytest.mark.parametrize("build", [bare, keyed, input_keyed])


@pytest.fixture(params=["invoke", "stream"])
def drive(request: pytest.FixtureRequest, face: str, loop_runner: asyncio.Runner) -> Drive:
    """Run a chain to its end by invoke, ainvoke, stream or astream."""

    def call(chain: Any, value: Any, config: Any = None) -> Any:
        config = config or on("t")
        if request.param == "invoke":
            return chain.invoke(value, config) if face == "sync" else loop_runner.run(chain.ainvoke(value, config))
        if face == "sync":
            return list(chain.stream(value, config))

        async def collect() -> list[Any]:
            return [chunk async for chunk in chain.astream(value, config)]

        return loop_runner.run(collect())

    return call


@CHAINS
def test_a_chain_remembers(plain: Memory, drive: Any, build: Any) -> None:
    model = Recording()
    chain = build(plain, model)
    for text in ("one", "two", "three"):
        drive(chain, given(build, text))
    assert spoken(model.seen[-1]) == ["one", "re: one", "two", "re: two", "three"]
    assert texts(plain.history.messages("t")) == ["one", "re: one", "two", "re: two", "three", "re: three"]


@CHAINS
@pytest.mark.parametrize(("last", "shown"), [(0, 0), (1, 2), (2, 2), (3, 4)])  # never an answer without its question
def test_a_chain_with_a_short_view_still_saves_all(
    make_memory: Make, drive: Any, build: Any, last: int, shown: int
) -> None:
    memory, model = make_memory(history=HistoryOptions(last_messages=last, step=1)), Recording()
    chain = build(memory, model)
    said = ["one", "two", "three", "four"]
    for text in said:
        drive(chain, given(build, text))
    assert texts(memory.history.messages("t")) == [line for text in said for line in (text, f"re: {text}")]
    assert len(spoken(model.seen[-1])) == shown + 1


@CHAINS
def test_sessions_do_not_see_each_other(plain: Memory, drive: Any, build: Any) -> None:
    model = Recording()
    chain = build(plain, model)
    drive(chain, given(build, "one"), on("t1"))
    drive(chain, given(build, "two"), on("t2"))
    assert spoken(model.seen[-1]) == ["two"]


def test_the_config_names_the_user(plain: Memory, drive: Any) -> None:
    chain = RunnableWithMessageHistory(Recording(), plain.chat_history, history_factory_config=plain.config_specs)
    drive(chain, [HumanMessage("one")], on("t", user_id="ann"))
    assert plain.threads.list(user_id="ann").items[0].message_count == 2


def test_the_config_cannot_take_somebody_elses_session(plain: Memory, drive: Any) -> None:
    plain.save_turn([HumanMessage("mine")], thread_id="t", user_id="ann")
    chain = RunnableWithMessageHistory(Recording(), plain.chat_history, history_factory_config=plain.config_specs)
    with pytest.raises(ThreadOwnershipError):
        drive(chain, [HumanMessage("one")], on("t", user_id="bob"))
    assert texts(plain.history.messages("t")) == ["mine"]


# ---------------------------------------------------------------------- something happens in between


@pytest.fixture(params=["new object per run", "one object"])
def factory(request: pytest.FixtureRequest, bystander: Memory) -> Any:
    if request.param == "one object":
        history = bystander.chat_history("t")
        return lambda session_id: history
    return by_session(bystander)


@pytest.fixture
def bystander(make_memory: Make, face: str) -> Memory:
    """A memory that is used by its sync methods, in both faces: it acts inside of a run."""
    made = make_memory()
    return made if face == "sync" else made._target  # type: ignore[attr-defined]


def failing(messages: Sequence[BaseMessage]) -> AIMessage:
    raise ArithmeticError


@pytest.mark.parametrize("build", [bare, input_keyed])
def test_a_run_that_fails_saves_nothing(bystander: Memory, factory: Any, drive: Any, build: Any) -> None:
    with pytest.raises(ArithmeticError):
        drive(build(bystander, RunnableLambda(failing), factory), given(build, "mine"))
    assert bystander.history.messages("t") == []


# ---------------------------------------------------------------------- many at once

MANY = 20


def together(chain: Any, values: Iterable[Any]) -> None:
    """Run a chain in a thread per value."""
    with ThreadPoolExecutor(MANY) as pool:
        list(pool.map(lambda value: chain.invoke(value, on("t")), values))


async def atogether(chain: Any, values: Iterable[Any]) -> None:
    """Run a chain in a task per value."""
    await asyncio.gather(*(chain.ainvoke(value, on("t")) for value in values))


def all_met() -> Any:
    """A model that answers when every one of the runs has read the history."""
    barrier, count, opened = Barrier(MANY, timeout=30), iter(range(1, MANY + 1)), asyncio.Event()

    def said(value: Any) -> AIMessage:
        messages = value if isinstance(value, list) else value.to_messages()
        return AIMessage(f"re: {messages[-1].text}")

    def answer(value: Any) -> AIMessage:
        barrier.wait()
        return said(value)

    async def aanswer(value: Any) -> AIMessage:
        if next(count) == MANY:
            opened.set()
        await opened.wait()
        return said(value)

    return RunnableLambda(answer, aanswer)


@pytest.mark.parametrize("old", [0, 30])
@pytest.mark.parametrize("pace", ["all read first", "as it comes"])
def test_runs_at_once_save_every_message_exactly_once(
    bystander: Memory, factory: Any, loop_runner: asyncio.Runner, face: str, old: int, pace: str
) -> None:
    before = [HumanMessage(f"old {at}") for at in range(old)]
    bystander.save_turn(before, thread_id="t", user_id="t")
    model = all_met() if pace == "all read first" else Recording()
    chain, said = keyed(bystander, model, factory), [f"said {at}" for at in range(MANY)]
    values = [given(keyed, text) for text in said]
    if face == "sync":
        together(chain, values)
    else:
        loop_runner.run(atogether(chain, values))
    found = texts(bystander.history.messages("t"))
    assert found[:old] == texts(before)
    assert sorted(found[old:]) == sorted([*said, *(f"re: {text}" for text in said)])
    assert all(found[found.index(text) + 1] == f"re: {text}" for text in said)
