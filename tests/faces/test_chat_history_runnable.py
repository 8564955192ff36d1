"""A thread as a chat history under RunnableWithMessageHistory, alone and with others at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import langchain_core
import pytest
from langchain_core._api.deprecation import LangChainDeprecationWarning
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from langchain_workingmem import HistoryOptions, Memory, ThreadOwnershipError
from langchain_workingmem.chat_history import RedisChatMessageHistory
from langchain_workingmem.faces import runnable_history
from tests.faces.nodes_samples import Recording, spoken, texts
from tests.helpers.conversations import ai, result
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
def test_a_view_without_tools_leaves_the_stored_ones_alone(make_memory: Make, drive: Any, build: Any) -> None:
    memory = make_memory(history=HistoryOptions(exclude_tools=True))
    old = [HumanMessage("x"), ai("words", "a"), result("a"), AIMessage("y")]
    memory.save_turn(old, thread_id="t", resource_id="t")
    drive(build(memory, Recording()), given(build, "one"))
    found = memory.history.messages("t")
    assert found[:4] == old
    assert texts(found[4:]) == ["one", "re: one"]


@CHAINS
def test_sessions_do_not_see_each_other(plain: Memory, drive: Any, build: Any) -> None:
    model = Recording()
    chain = build(plain, model)
    drive(chain, given(build, "one"), on("t1"))
    drive(chain, given(build, "two"), on("t2"))
    assert spoken(model.seen[-1]) == ["two"]


def test_the_config_names_the_user(plain: Memory, drive: Any) -> None:
    chain = RunnableWithMessageHistory(Recording(), plain.chat_history, history_factory_config=plain.config_specs)
    drive(chain, [HumanMessage("one")], on("t", resource_id="ann"))
    assert plain.threads.list(resource_id="ann").items[0].message_count == 2


def test_the_config_cannot_take_somebody_elses_session(plain: Memory, drive: Any) -> None:
    plain.save_turn([HumanMessage("mine")], thread_id="t", resource_id="ann")
    chain = RunnableWithMessageHistory(Recording(), plain.chat_history, history_factory_config=plain.config_specs)
    with pytest.raises(ThreadOwnershipError):
        drive(chain, [HumanMessage("one")], on("t", resource_id="bob"))
    assert texts(plain.history.messages("t")) == ["mine"]


def test_without_a_user_in_the_config_the_owner_counts(plain: Memory, drive: Any) -> None:
    plain.threads.create(resource_id="ann", thread_id="t")
    chain = RunnableWithMessageHistory(Recording(), plain.chat_history, history_factory_config=plain.config_specs)
    drive(chain, [HumanMessage("one")], on("t", resource_id=None))
    assert plain.threads.list(resource_id="ann").items[0].message_count == 2


# ---------------------------------------------------------------------- something happens in between


def meanwhile(action: Callable[[], object]) -> Any:
    """A model during whose answer something else happens to the session."""

    def answer(messages: Sequence[BaseMessage]) -> AIMessage:
        action()
        return AIMessage(f"re: {messages[-1].text}")

    async def aanswer(messages: Sequence[BaseMessage]) -> AIMessage:
        return await asyncio.to_thread(answer, messages)

    return RunnableLambda(answer, aanswer)


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


@pytest.mark.parametrize("build", [bare, input_keyed])
@pytest.mark.parametrize("before", [0, 2, 12])
def test_what_others_add_during_a_run_loses_nothing(
    bystander: Memory, factory: Any, drive: Any, build: Any, before: int
) -> None:
    old = [HumanMessage(f"old {at}") for at in range(before)]
    bystander.save_turn(old, thread_id="t", resource_id="t")
    other = [HumanMessage("other"), AIMessage("re: other"), HumanMessage("more")]
    chain = build(bystander, meanwhile(lambda: bystander.save_turn(other, thread_id="t", resource_id="t")), factory)
    drive(chain, given(build, "mine"))
    found = texts(bystander.history.messages("t"))
    assert found == [*texts(old), *texts(other), "mine", "re: mine"]


@pytest.mark.parametrize("build", [bare, input_keyed])
def test_a_clear_during_a_run_brings_nothing_back(bystander: Memory, factory: Any, drive: Any, build: Any) -> None:
    bystander.save_turn([HumanMessage("old"), AIMessage("re: old")], thread_id="t", resource_id="t")
    drive(build(bystander, meanwhile(lambda: bystander.history.clear("t")), factory), given(build, "mine"))
    assert texts(bystander.history.messages("t")) == ["mine", "re: mine"]


def failing(messages: Sequence[BaseMessage]) -> AIMessage:
    raise ArithmeticError


@pytest.mark.parametrize("build", [bare, input_keyed])
def test_a_run_that_fails_saves_nothing(bystander: Memory, factory: Any, drive: Any, build: Any) -> None:
    with pytest.raises(ArithmeticError):
        drive(build(bystander, RunnableLambda(failing), factory), given(build, "mine"))
    assert bystander.history.messages("t") == []


@pytest.mark.parametrize("build", [bare, input_keyed])
def test_a_clear_after_a_failed_run_brings_nothing_back(
    bystander: Memory, factory: Any, drive: Any, build: Any
) -> None:
    with pytest.raises(ArithmeticError):
        drive(build(bystander, RunnableLambda(failing), factory), given(build, "lost"))
    bystander.save_turn([HumanMessage("old"), AIMessage("re: old")], thread_id="t", resource_id="t")
    drive(build(bystander, meanwhile(lambda: bystander.history.clear("t")), factory), given(build, "mine"))
    assert texts(bystander.history.messages("t")) == ["mine", "re: mine"]


def test_another_langchain_than_we_know_is_told_of(
    plain: Memory, caplog: pytest.LogCaptureFixture, face: str, loop_runner: asyncio.Runner
) -> None:
    """When langchain_core renames what we look at, there is one warning, and the messages are read all the same."""
    runnable_history._warn_once.cache_clear()
    plain.save_turn([HumanMessage("one")], thread_id="t", resource_id="t")
    read = "def renamed(found): return found.messages"
    aread = "async def renamed(found): return await found.aget_messages()"
    module: dict[str, Any] = {"__name__": "langchain_core.runnables.history"}
    exec(read if face == "sync" else aread, module)
    for _ in range(2):
        found = module["renamed"](plain.chat_history("t"))
        assert texts(found if face == "sync" else loop_runner.run(found)) == ["one"]
    (record,) = caplog.records
    assert f"langchain-core {langchain_core.__version__} reads" in record.getMessage()


def test_a_langchain_without_the_list_of_the_run_is_told_of(plain: Memory, caplog: pytest.LogCaptureFixture) -> None:
    runnable_history._warn_once.cache_clear()
    plain.save_turn([HumanMessage("one")], thread_id="t", resource_id="t")
    module: dict[str, Any] = {"__name__": "langchain_core.runnables.history"}
    exec("def _exit_history(found): return found.messages", module)
    assert texts(module["_exit_history"](plain.chat_history("t"))) == ["one"]
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("module", "expected"), [("langchain_core.runnables.moved", True), ("my.app", False), ("langchain_corel", False)]
)
def test_ids_that_langchain_core_passes_come_from_the_config_wherever_the_class_is(module: str, expected: bool) -> None:
    def factory() -> bool:
        return runnable_history.is_from_config()

    space: dict[str, Any] = {"__name__": module, "factory": factory}
    exec("def call(): return factory()", space)
    assert space["call"]() is expected


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


@CHAINS
@pytest.mark.parametrize("old", [0, 1, 30])
@pytest.mark.parametrize("pace", ["all read first", "as it comes"])
def test_runs_at_once_save_every_message_exactly_once(
    bystander: Memory, factory: Any, loop_runner: asyncio.Runner, face: str, build: Any, old: int, pace: str
) -> None:
    before = [HumanMessage(f"old {at}") for at in range(old)]
    bystander.save_turn(before, thread_id="t", resource_id="t")
    model = all_met() if pace == "all read first" else Recording()
    chain, said = build(bystander, model, factory), [f"said {at}" for at in range(MANY)]
    values = [given(build, text) for text in said]
    if face == "sync":
        together(chain, values)
    else:
        loop_runner.run(atogether(chain, values))
    found = texts(bystander.history.messages("t"))
    assert found[:old] == texts(before)
    assert sorted(found[old:]) == sorted([*said, *(f"re: {text}" for text in said)])
    assert all(found[found.index(text) + 1] == f"re: {text}" for text in said)


def test_a_deletion_while_others_run_on_one_object_stays(bystander: Memory, loop_runner: asyncio.Runner) -> None:
    history = bystander.chat_history("t")
    inner: Any = bare(bystander, Recording(), lambda session_id: history)

    def first_turn_then_deletion() -> None:
        """Inside the outer run, which saw an empty thread: another turn, and a third in which that one is deleted."""
        inner.invoke([HumanMessage("unwanted")], on("t"))
        deleting = bare(bystander, meanwhile(lambda: bystander.history.clear("t")), lambda session_id: history)
        deleting.invoke([HumanMessage("kept")], on("t"))

    outer = bare(bystander, meanwhile(first_turn_then_deletion), lambda session_id: history)
    outer.invoke([HumanMessage("outer")], on("t"))
    assert texts(bystander.history.messages("t")) == ["kept", "re: kept", "outer", "re: outer"]
