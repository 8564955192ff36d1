"""Models that take too long or refuse, who hears of it, and plans that run in the background."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from langchain_core import exceptions
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_workingmem import ModelError
from langchain_workingmem._engine.calls import ask, is_overflow, is_refusal
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


def noting(log: list[str], *notes: str, then: Plan[None] | None = None, slow: bool = False) -> Plan[None]:
    for note in notes:
        yield Sleep(0.001)
        log.append(note)
    if then is not None:
        yield Spawn(then, "test", slow)


def starting(*plans: Plan[None], slow: bool) -> Plan[None]:
    for plan in plans:
        yield Spawn(plan, "test", slow)


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


def openai_error(kind: type[openai.APIStatusError], status: int, code: str | None = None) -> openai.APIStatusError:
    request = httpx.Request("POST", "http://provider")
    response: Any = httpx.Response(status, request=request)  # of the httpx that the packages have, whichever that is
    return kind("no", response=response, body={"code": code})


class LookAlikeError(Exception):
    """An error with the words and the attributes that it is given."""

    def __init__(self, words: str = "no", **attributes: Any) -> None:
        super().__init__(words)
        vars(self).update(attributes)


REFUSALS = [
    openai_error(openai.BadRequestError, 400),
    LookAlikeError(status_code=400),
    LookAlikeError(code=HTTPStatus.BAD_REQUEST),  # google.api_core.exceptions.InvalidArgument
    LookAlikeError(http_status=413),
    LookAlikeError(response=SimpleNamespace(status_code=422)),
    LookAlikeError(response={"ResponseMetadata": {"HTTPStatusCode": 400}}),  # botocore
    exceptions.ModelInvalidRequestError("no"),
]

PASSING = [
    openai_error(openai.RateLimitError, 429, "insufficient_quota"),
    openai.APITimeoutError(openai_error(openai.NotFoundError, 404).request),
    exceptions.ModelTimeoutError("later"),
    ValueError("400"),
    LookAlikeError(code=lambda: 400),  # grpc.RpcError
    LookAlikeError(code=True, status_code=None, response=None),
    LookAlikeError(code=40_000),
    LookAlikeError(response={"ResponseMetadata": None}),
    KeyboardInterrupt(),
]


OVERFLOWS = [
    exceptions.ContextOverflowError("too long"),
    openai_error(openai.BadRequestError, 400, "context_length_exceeded"),
    *(
        LookAlikeError(words, status_code=400)
        for words in (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens.",
            "prompt is too long: 208310 tokens > 200000 maximum",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "Please reduce the length of the messages or completion.",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193.",
            "litellm.ContextWindowExceededError: no",
        )
    ),
]


KINDS: list[tuple[BaseException, bool, bool]] = [
    *((error, True, False) for error in REFUSALS),
    *((error, False, False) for error in PASSING),
    *((error, True, True) for error in OVERFLOWS),
]


@pytest.mark.parametrize(("error", "refused", "overflow"), KINDS, ids=repr)
def test_what_would_be_refused_again_is_a_refusal_and_what_is_too_long_an_overflow(
    error: BaseException, refused: bool, overflow: bool
) -> None:
    outer = RuntimeError("the chain failed")
    outer.__cause__ = error
    for one in (error, outer):
        assert (is_refusal(one), is_overflow(one)) == (refused, overflow)


ASKED = [f"{owner}_TRACING{version}" for owner in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2")]


HEARD = "from langchain_workingmem._engine.calls import traced"
CASES: dict[str, tuple[str, dict[str, str], str]] = {
    "nobody, and nothing is imported": ("print({'langchain_core', 'langsmith'} & {*sys.modules})", {}, "set() False"),
    "the environment": ("", {"LANGSMITH_TRACING": "true"}, "True"),
    "a program": ("import langsmith; langsmith.configure(enabled=True)", {}, "True"),
}


@pytest.mark.parametrize("who", CASES)
def test_who_asks_for_traces_is_heard(who: str) -> None:
    """In a process of its own, whose environment is that of the test without what asks for traces."""
    code, asked, expected = CASES[who]
    environment = {name: value for name, value in os.environ.items() if name not in ASKED} | asked
    words = [sys.executable, "-c", f"import sys\n{HEARD}\n{code}\nprint(traced(None, '') is not None)"]
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == expected.split()
