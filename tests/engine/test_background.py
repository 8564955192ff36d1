"""Chat models that take too long, and plans that run in the background."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_workingmem import ModelError
from langchain_workingmem._engine.calls import ask
from langchain_workingmem._engine.plan import Plan, Sleep, Spawn
from langchain_workingmem._engine.run import AsyncRunner, Runner
from langchain_workingmem.errors import MemoryClosedError
from tests.helpers.types import Make

QUESTION = [HumanMessage("hello")]
LONG = 60  # seconds; a test that waits that long has failed


def no_client() -> Any:
    raise AssertionError


class Model(BaseChatModel):
    """Answers what `does` returns; where it has a gate, when that opens at the end of a test."""

    does: Callable[[], str] = str
    gate: Any = None

    @property
    def _llm_type(self) -> str:
        return "slow"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if self.gate:
            self.gate.wait(LONG)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.does()))])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if self.gate:
            await asyncio.Event().wait()
        return self._generate(messages)


@pytest.fixture
def hanging() -> Iterator[Model]:
    model = Model(gate=threading.Event())
    yield model
    model.gate.set()


def asking(model: BaseChatModel, seconds: float | None) -> Plan[str]:
    answer = yield from ask(model, QUESTION, seconds)
    return str(answer.text)


@pytest.fixture
def run(face: str) -> Callable[[Plan[Any]], Any]:
    """Run a plan by the face of the test."""
    if face == "sync":
        return Runner(no_client).run
    return lambda plan: asyncio.run(AsyncRunner(no_client).run(plan))


@pytest.mark.both_faces
def test_a_model_that_does_not_answer_in_time_is_an_error_and_its_own_errors_stay(
    run: Callable[[Plan[Any]], Any], hanging: Model
) -> None:
    def fail() -> str:
        raise TimeoutError("the provider was slow")

    with pytest.raises(ModelError, match=r"did not answer within 0\.05 s") as caught:
        run(asking(hanging, 0.05))
    assert caught.value.remedy is not None
    assert not hanging.gate.is_set()
    for seconds in (None, LONG):
        assert run(asking(Model(does=lambda: "yes"), seconds)) == "yes"
        with pytest.raises(ModelError, match=r"the chat model failed \(TimeoutError: the provider was slow\)"):
            run(asking(Model(does=fail), seconds))


# ---------------------------------------------------------------------- the background


def noting(log: list[str], *notes: str, then: Plan[None] | None = None, slow: bool = False) -> Plan[None]:
    for note in notes:
        yield Sleep(0.001)
        log.append(note)
    if then is not None:
        yield Spawn(then, slow)


def starting(*plans: Plan[None], slow: bool) -> Plan[None]:
    for plan in plans:
        yield Spawn(plan, slow)


def test_plans_that_hang_do_not_keep_short_plans_from_running(hanging: Model) -> None:
    runner = Runner(no_client)
    ran = threading.Event()
    answers: list[str] = []

    def asking() -> Plan[None]:
        answers.append((yield from ask(hanging, QUESTION)).text)

    def short() -> Plan[None]:
        yield Sleep(0)
        ran.set()

    runner.run(starting(*(asking() for _ in range(10)), slow=True))
    runner.run(starting(short(), slow=False))
    assert ran.wait(LONG)
    assert answers == []
    assert sum(thread.name == "workingmem-slow" for thread in threading.enumerate()) < 10
    hanging.gate.set()
    runner.close()
    assert len(answers) == 10  # those that waited for a thread, too
    assert all(thread.name != "workingmem-slow" for thread in threading.enumerate())


@pytest.mark.both_faces
@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("waiting", ["close", "settled"])
def test_close_waits_for_background_plans_and_for_those_that_they_start(
    make_memory: Make, slow: bool, waiting: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = make_memory()
    for _ in range(2 if waiting == "settled" else 1):
        log: list[str] = []
        last = noting(log, "third")
        memory._core.run(starting(noting(log, "first", "second", then=last, slow=not slow), slow=slow))
        getattr(memory, waiting)()
        assert log == ["first", "second", "third"]
    assert not caplog.records


@pytest.mark.both_faces
def test_a_slow_plan_that_fails_is_logged_and_the_next_one_runs(
    make_memory: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def failing() -> Plan[None]:
        yield Sleep(0)
        raise LookupError

    memory, log = make_memory(), list[str]()
    memory._core.run(starting(failing(), noting(log, "next"), slow=True))
    memory.close()
    assert [record.message for record in caplog.records] == ["a background plan has failed"]
    assert log == ["next"]
    memory.close()
    for call in (lambda: memory.threads.get("t"), lambda: memory.context("hi", thread_id="t", user_id="u")):
        with pytest.raises(MemoryClosedError, match="the memory is closed"):
            call()
