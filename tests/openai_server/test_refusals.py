"""Who may ask, what is refused and how it is said, and the end of a run whose client has left."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import httpx
import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from langchain_workingmem import Memory, OptionError, ResourceDeletedError
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.openai_server import application
from tests.helpers.embedded import wait_until
from tests.helpers.models import Bench, Scripted, calling, said, weather
from tests.openai_server.conftest import HELLO, KEYS, MAYA, Serve, agent_app, client_of


class TooLongError(Exception):
    status_code = 400


class TooOftenError(Exception):
    status_code = 429


def echo(**options: Any) -> Any:
    """An application without memory that answers who asks, and where."""

    def run(state: Any, config: Any) -> str:
        ids = config["configurable"]
        return f"{ids['user_id']} in {ids['thread_id']}"

    return application(RunnableLambda(run), **{"users": KEYS, **options})


def always(answer: Any) -> Any:
    return RunnableLambda(lambda _: answer)


async def post(app: Any, body: Any, key: str = MAYA, **headers: str) -> httpx.Response:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://testserver") as client:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"authorization": f"Bearer {key}", "x-conversation-id": "t", **headers}
        return await client.post("/v1/chat/completions", content=content, headers={k: v for k, v in sent.items() if v})


GOOD = {"model": "agent", "messages": HELLO}


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"model": "gpt-4o"}, 404, "there is no model 'gpt-4o'"),
        ({"model": []}, 404, "there is no model []"),
        ({"messages": []}, 400, "the last message is not the user's"),
        ({"messages": "hello"}, 400, "no list of messages"),
        ({"messages": [{"content": "x"}]}, 400, "no list of messages"),
        ({"messages": [{"role": "remove", "content": "x"}]}, 400, "no list of messages"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "x"}]}, 400, "the last message is not the user's"),
        ({"messages": [{"role": "user", "content": 5}]}, 400, "messages cannot be read"),
        ({"messages": [{"role": "system", "content": "x"}, {"role": "tool", "content": "x"}]}, 400, "cannot be read"),
        ({"tools": [{"type": "function"}]}, 400, "leave out tools"),
        ({"functions": [{}]}, 400, "leave out tools"),
        ({"n": 2}, 400, "leave out n"),
        ({"response_format": {"type": "json_object"}}, 400, "the form of its answers"),
        ({"response_format": "json"}, 400, "the form of its answers"),
        (b"{", 400, "not JSON"),
        (b"[" * 100_000, 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b" " * 2_000, 413, "at most 1,000 bytes"),
    ],
)
async def test_a_bad_request_is_told_in_the_protocol_s_form(change: Any, status: int, words: str) -> None:
    body = change if isinstance(change, bytes) else {**GOOD, **change}
    found = await post(echo(max_bytes=150_000 if len(body) > 2000 else 1_000), body)
    assert (found.status_code, set(found.json())) == (status, {"error"})
    error = found.json()["error"]
    assert words in error["message"]
    assert (error["type"], set(error)) == ("invalid_request_error", {"message", "type", "param", "code"})


@pytest.mark.parametrize(
    ("headers", "metadata", "found"),
    [
        ({}, None, "t"),
        ({"x-conversation-id": "", "x-openwebui-chat-id": "w"}, None, "w"),
        ({"x-conversation-id": ""}, {"thread_id": "m"}, "m"),
        ({"x-conversation-id": ""}, {"thread_id": 5}, None),
        ({"x-conversation-id": ""}, None, None),
        ({"x-conversation-id": "x" * 600}, None, "x" * 600),
    ],
)
async def test_the_conversation_has_a_name(headers: Any, metadata: Any, found: str | None) -> None:
    answer = await post(echo(), {**GOOD, "metadata": metadata, "user": "omar"}, **headers)
    if found is None:
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "thread_missing"
    else:
        assert answer.json()["choices"][0]["message"]["content"] == f"maya in {found}"


async def test_users_are_found_by_their_token_by_a_function_or_there_is_one() -> None:
    for key in ("", "unknown", MAYA + "x"):
        refused = await post(echo(), GOOD, key)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert refused.json()["error"]["code"] == "invalid_api_key"

    async def signed_in(headers: Any) -> str | None:
        await asyncio.sleep(0)
        return headers.get("x-openwebui-user-id") if headers.get("authorization") == f"Bearer {MAYA}" else None

    async def who(users: Any, key: str, **headers: str) -> Any:
        found = await post(echo(users=users), GOOD, key, **headers)
        return found.status_code if found.status_code != 200 else found.json()["choices"][0]["message"]["content"]

    assert await who(signed_in, MAYA, **{"x-openwebui-user-id": "eva"}) == "eva in t"
    assert await who(signed_in, MAYA) == 401
    assert await who(signed_in, "other", **{"x-openwebui-user-id": "eva"}) == 401
    assert await who("sole", "") == "sole in t"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"users": {}}, "there is no token"),
        ({"users": {"short": "maya"}}, "shorter than 16"),
        ({"users": ""}, "users"),
        ({"stream": "tokens"}, "stream"),
    ],
)
def test_a_server_that_cannot_protect_is_refused(options: Any, words: str) -> None:
    with pytest.raises((OptionError, ValueError), match=words):
        echo(**options)


def test_models_are_listed_and_other_paths_are_told_in_json(serve: Serve) -> None:
    url = serve(echo(name="my/agent"))
    client = client_of(url)
    assert [model.id for model in client.models.list()] == ["my/agent", "my/agent-tasks"]
    assert client.models.retrieve("my/agent").owned_by == "langchain-workingmem"
    with pytest.raises(openai.NotFoundError, match="no model"):
        client.models.retrieve("other")
    with pytest.raises(openai.AuthenticationError):
        client_of(url, "unknown").models.list()
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="x", input="x")
    assert httpx.get(f"{url}/chat/completions").json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("failure", "kind", "words"),
    [
        (RuntimeError("secret"), openai.InternalServerError, "the agent failed"),
        (TooLongError("secret"), openai.BadRequestError, "the model refused"),
        (TooOftenError("secret"), openai.RateLimitError, "too many requests"),
        (ResourceDeletedError("maya"), openai.ConflictError, "are being deleted"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_fails_before_the_first_word_has_a_status(
    failure: Exception, kind: type[Exception], words: str, stream: bool, serve: Serve, memory: Memory
) -> None:
    _, app = agent_app(memory, failure, "better")
    client = client_of(serve(app))
    with pytest.raises(kind, match=words) as caught:
        client.chat.completions.create(model="agent", messages=HELLO, stream=stream)
    assert "secret" not in str(caught.value)
    assert client.chat.completions.create(model="agent", messages=HELLO).choices[0].message.content == "better"
    assert said(memory.history.messages("t")) == ["human: hello", "ai: better"]


def test_what_fails_later_ends_the_stream_with_the_error(serve: Serve, memory: Memory) -> None:
    called = calling(("weather", {"city": "Oslo"}), id="a", text="let me look")
    _, app = agent_app(memory, called, RuntimeError("secret"))
    chunks = iter(client_of(serve(app)).chat.completions.create(model="agent", messages=HELLO, stream=True))
    text = "".join(next(chunks).choices[0].delta.content or "" for _ in range(4))
    assert text == "let me look "
    with pytest.raises(openai.APIError, match="the agent failed"):
        list(chunks)


def test_without_redis_the_status_says_so(serve: Serve, bench: Bench) -> None:
    memory = bench.memory(redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(openai.InternalServerError) as caught:
        client_of(serve(agent_app(memory)[1])).chat.completions.create(model="agent", messages=HELLO)
    assert caught.value.status_code == 503


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_run(stream: bool, serve: Serve, memory: Memory) -> None:
    begun, ended, finished = threading.Event(), threading.Event(), threading.Event()

    class Slow(Scripted):
        async def _astream(self, *_: Any, **__: Any) -> Any:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.set()
                raise
            finished.set()
            yield

        async def _agenerate(self, *_: Any, **__: Any) -> Any:
            async for _one in self._astream():
                pass

    _, app = agent_app(memory, Slow(script=[]))
    client = client_of(serve(app), timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        client.chat.completions.create(model="agent", messages=HELLO, stream=stream)
    assert begun.is_set()
    wait_until(ended.is_set)
    assert not finished.is_set()
    assert said(memory.history.messages("t")) == ["human: hello"]


async def test_an_agent_that_waits_for_a_person_is_told(memory: Memory) -> None:
    asks = HumanInTheLoopMiddleware({"weather": True})
    model = Scripted.says(calling(("weather", {"city": "Oslo"}), id="a"))
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory), asks], checkpointer=InMemorySaver())
    found = await post(application(agent, memory, users=KEYS), GOOD)
    assert found.status_code == 501
    assert "person's decision" in found.json()["error"]["message"]


def test_a_client_that_leaves_after_the_first_word_ends_the_run(serve: Serve, memory: Memory) -> None:
    ended = threading.Event()

    class Slow(Scripted):
        async def _astream(self, *_: Any, **__: Any) -> Any:
            try:  # the client may leave before the word is answered
                yield ChatGenerationChunk(message=AIMessageChunk(content="well"))
                await asyncio.sleep(60)
            finally:
                ended.set()

    _, app = agent_app(memory, Slow(script=[]))
    chunks: Any = client_of(serve(app)).chat.completions.create(model="agent", messages=HELLO, stream=True)
    assert [next(chunks).choices[0].delta.content for _ in range(2)] == ["", "well"]
    chunks.close()
    wait_until(ended.is_set)
    wait_until(lambda: said(memory.history.messages("t")) == ["human: hello"])


class City(BaseModel):
    """A city."""

    name: str


async def test_a_structured_answer_is_its_json(memory: Memory) -> None:
    model = Scripted.says(calling(("City", {"name": "Oslo"}), id="a"), "bye")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory)], response_format=City)
    app = application(agent, memory, users=KEYS)
    found = (await post(app, GOOD)).json()["choices"][0]["message"]["content"]
    assert found == '{"name":"Oslo"}'


@pytest.mark.parametrize("stream", [False, True])
async def test_other_runnables_answer_too(stream: bool) -> None:
    for answer in ("hi", AIMessage("hi"), {"messages": [AIMessage("hi")]}):
        app = application(always(answer), users="maya")
        found = await post(app, {**GOOD, "stream": stream})
        if stream:
            assert found.headers["content-type"].startswith("text/event-stream")
            *events, end = found.text.removesuffix("\n\n").split("\n\n")
            assert end == "data: [DONE]"
            parts = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in events]
            assert parts == [{"role": "assistant", "content": ""}, {"content": "hi"}, {}]
        else:
            assert found.json()["choices"][0]["message"] == {"role": "assistant", "content": "hi"}


async def test_a_cut_answer_says_why() -> None:
    for said_reason, reason in (("max_tokens", "length"), ("length", "length"), ("content_filter", "content_filter")):
        cut = AIMessage("hi", response_metadata={"stop_reason": said_reason})
        found = await post(application(always(cut), users="maya"), GOOD)
        assert found.json()["choices"][0]["finish_reason"] == reason


async def test_no_id_and_no_mark_of_a_client_reaches_memory(memory: Memory) -> None:
    model, app = agent_app(memory, "2")
    sneaky = {"role": "user", "content": "1", "id": "other", "additional_kwargs": {"lc": 1}, "response_metadata": {}}
    assert (await post(app, {**GOOD, "messages": [sneaky]})).status_code == 200
    asked = model.seen[0][-1]
    assert (asked.id, asked.additional_kwargs) == ("first-q356a192b7913", {})


async def test_a_name_that_memory_does_not_take_is_told(memory: Memory) -> None:
    _, app = agent_app(memory)
    found = await post(app, GOOD, **{"x-conversation-id": "x" * 600})
    assert found.status_code == 400
    assert "the limit is 512" in found.json()["error"]["message"]
