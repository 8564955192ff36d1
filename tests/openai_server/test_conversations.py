"""Whole conversations of two users, by the official clients of OpenAI and LangChain, streamed and not."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, PIIMiddleware
from langchain_core.messages import AIMessage, BaseMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, NotFoundError

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.openai_server import application
from langchain_workingmem.openai_server.protocol import BREAK
from tests.helpers.models import Bench, Scripted, calling, own, said
from tests.openai_server.conftest import HTTP, KEYS, MAYA, OMAR, Serve, agent_app, client_of, listed


class Window:
    """A chat window: it keeps the conversation, and sends all of it each time."""

    def __init__(self, how: str, url: str, key: str = MAYA, chat: str = "t") -> None:
        self.how, self.url, self.key, self.chat = how, url, key, chat
        self.lines: list[str] = []

    def ask(self, text: str) -> str:
        return self.send(f"human: {text}")

    def regenerate(self) -> str:
        self.lines.pop()
        return self.send()

    def edit(self, text: str) -> str:
        del self.lines[-2:]
        return self.ask(text)

    def send(self, *more: str) -> str:
        self.lines += more
        answer = getattr(self, self.how.replace(" ", "_"))()
        self.lines.append(f"ai: {answer}")
        return str(answer)

    def plain(self) -> Any:
        asked: Any = client_of(self.url, self.key, self.chat).chat.completions.create(
            model="agent", messages=listed(*self.lines)
        )
        return asked.choices[0].message.content

    def streamed(self) -> str:
        chunks: Any = client_of(self.url, self.key, self.chat).chat.completions.create(
            model="agent", messages=listed(*self.lines), stream=True, stream_options={"include_usage": True}
        )
        return joined(chunks)

    def asynchronous(self) -> str:
        async def ask() -> str:
            options: Any = {
                "default_headers": {"X-OpenWebUI-Chat-Id": self.chat},
                "max_retries": 0,
                "http_client": httpx2.AsyncClient(verify=False),
            }
            async with AsyncOpenAI(base_url=self.url, api_key=self.key, **options) as client:
                chunks: Any = await client.chat.completions.create(
                    model="agent", messages=listed(*self.lines), stream=True
                )
                return joined([chunk async for chunk in chunks])

        return asyncio.run(ask())

    def langchain(self) -> str:
        return str(self.model().invoke(listed(*self.lines)).text)

    def langchain_streamed(self) -> str:
        return "".join(chunk.text for chunk in self.model().stream(listed(*self.lines)))

    def model(self) -> Any:
        named: Any = {"model": "agent", "base_url": self.url, "api_key": self.key, "http_client": HTTP}
        return ChatOpenAI(**named, max_retries=0, extra_body={"metadata": {"thread_id": self.chat}})


def joined(chunks: Any) -> str:
    """Check the form of a stream, and return its text."""
    found = list(chunks)
    parts = [chunk for chunk in found if chunk.choices]
    assert parts[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert not any(chunk.choices[0].delta.tool_calls for chunk in parts)
    assert len({chunk.id for chunk in found}) == 1
    return "".join(chunk.choices[0].delta.content or "" for chunk in parts)


HOWS = ["plain", "streamed", "asynchronous", "langchain", "langchain streamed"]


@pytest.mark.parametrize("how", HOWS)
def test_two_users_talk_edit_and_ask_again(how: str, serve: Serve, memory: Memory) -> None:
    called = calling(("weather", {"city": "Oslo"}), id="a")
    model, app = agent_app(memory, "two", called, "sunny there", "sunny again", "hail", "boats", "six")
    url = serve(app)
    mine, other = Window(how, url), Window(how, url, OMAR, "u")
    assert mine.ask("one").split() == ["two"]
    mine.ask("and Oslo?")
    tools = ["ai: weather#a-0", "tool: sunny in Oslo"]
    kept = ["human: one", "ai: two", "human: and Oslo?"]
    assert trimmed(memory) == [*kept, *tools, "ai: sunny there"]
    mine.regenerate()
    assert trimmed(memory) == [*kept, "ai: sunny again"]
    mine.edit("and Rome?")
    assert [line.strip() for line in said(model.seen[-1])] == [*kept[:2], "human: and Rome?"]
    assert other.ask("boats?").strip() == "boats"
    mine.ask("five")
    whole = [*kept[:2], "human: and Rome?", "ai: hail", "human: five", "ai: six"]
    assert trimmed(memory) == whole
    superseded = [line.strip() for line in said(memory.history.messages("t", superseded=True))]
    assert {*kept, *tools, "ai: sunny there", "ai: sunny again", *whole} == set(superseded)
    assert len(superseded) == len(set(superseded))  # each is stored once
    assert trimmed(memory, "u") == ["human: boats?", "ai: boats"]
    assert memory.threads.get("t", resource_id="maya")
    with pytest.raises(NotFoundError, match="no such conversation"):
        Window("plain", url, OMAR).ask("let me in")


def trimmed(memory: Memory, thread: str = "t") -> list[str]:
    return [line.strip() for line in said(memory.history.messages(thread))]  # a scripted stream ends with a blank


@pytest.mark.parametrize("how", ["plain", "streamed"])
def test_the_first_question_is_edited_and_asked_again(how: str, serve: Serve, memory: Memory) -> None:
    model, app = agent_app(memory, "2", "two", "zwei", "4")
    window = Window(how, serve(app))
    window.ask("1")
    window.regenerate()
    window.edit("one")
    assert [said(messages) for messages in model.seen] == [["human: 1"], ["human: 1"], ["human: one"]]
    assert trimmed(memory) == ["human: one", "ai: zwei"]
    window.ask("3")
    assert trimmed(memory) == ["human: one", "ai: zwei", "human: 3", "ai: 4"]


def test_a_client_that_leaves_out_the_beginning_supersedes_nothing(serve: Serve, memory: Memory) -> None:
    _, app = agent_app(memory, "2", "4", "6", "eight")
    window = Window("plain", serve(app))
    for text in "135":
        window.ask(text)
    del window.lines[:2]
    window.ask("7")
    whole = ["human: 1", "ai: 2", "human: 3", "ai: 4", "human: 5", "ai: 6", "human: 7", "ai: eight"]
    assert trimmed(memory) == whole


def test_a_client_that_sends_only_what_is_new_gets_the_history(serve: Serve, memory: Memory) -> None:
    model = Scripted.says("2", "4")
    agent = create_agent(model, middleware=[MemoryMiddleware(memory)])
    url = serve(application(agent, users=KEYS))
    for text in ("1", "3"):
        client_of(url).chat.completions.create(model="agent", messages=listed(f"human: {text}"))
    assert said(model.seen[-1]) == ["human: 1", "ai: 2", "human: 3"]
    assert trimmed(memory) == ["human: 1", "ai: 2", "human: 3", "ai: 4"]


def test_what_is_said_before_a_tool_call_is_shown_and_not_taken_for_the_answer(serve: Serve, memory: Memory) -> None:
    called = calling(("weather", {"city": "Oslo"}), id="a", text="let me look")
    model, app = agent_app(memory, called, "sunny", "bye")
    window = Window("streamed", serve(app))
    assert window.ask("Oslo?") == f"let me look {BREAK}sunny "
    window.ask("thanks")
    assert [line.strip() for line in said(model.seen[-1])] == [
        "human: Oslo?", "ai: let me look  weather#a-0", "tool: sunny in Oslo", "ai: sunny", "human: thanks"
    ]  # fmt: skip
    assert len(memory.history.messages("t", superseded=True)) == 6


def test_an_answer_that_a_guardrail_changes_is_streamed_when_it_is_final(serve: Serve, memory: Memory) -> None:
    guard = PIIMiddleware("email", apply_to_output=True)
    _, app = agent_app(memory, "i am a@b.de", "bye", middleware=[guard], stream="answers")
    window = Window("streamed", serve(app))
    assert window.ask("who are you?").strip() == "i am [REDACTED_EMAIL]"
    window.ask("thanks")
    assert not any("a@b.de" in line for line in said(memory.history.messages("t", superseded=True)))
    assert trimmed(memory)[:2] == ["human: who are you?", "ai: i am [REDACTED_EMAIL]"]


def test_with_words_the_changed_answer_follows_what_was_said(serve: Serve, memory: Memory) -> None:
    guard = PIIMiddleware("email", apply_to_output=True)
    _, app = agent_app(memory, "i am a@b.de", "bye", middleware=[guard])
    window = Window("streamed", serve(app))
    assert window.ask("who?") == f"i am a@b.de {BREAK}i am [REDACTED_EMAIL] "
    window.ask("thanks")
    assert not any("a@b.de" in line for line in said(memory.history.messages("t", superseded=True)))


class Classifies(AgentMiddleware[Any, Any]):
    """Asks a model of its own, as the middleware of LangChain does."""

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        await Scripted.says("a harmless question").ainvoke("is it?", {"metadata": {"lc_source": "tool_selection"}})
        return await handler(request)


def test_a_model_call_of_a_middleware_is_not_part_of_the_answer(serve: Serve, memory: Memory) -> None:
    _, app = agent_app(memory, "sunny", middleware=[Classifies()])
    assert Window("streamed", serve(app)).ask("Oslo?").strip() == "sunny"


def counted(text: str, read: int, written: int) -> AIMessage:
    usage: Any = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return AIMessage(text, usage_metadata=usage)


def test_usage_counts_all_model_calls_of_the_run(serve: Serve, memory: Memory) -> None:
    called = counted("", 100, 7)
    called.tool_calls = calling(("weather", {"city": "Oslo"}), id="a").tool_calls

    class Unstreamed(Scripted):
        disable_streaming: bool = True

    model = Unstreamed(script=[called, counted("sunny", 120, 3)] * 2)
    url = serve(agent_app(memory, model)[1])
    found = client_of(url).chat.completions.create(model="agent", messages=listed("human: Oslo?"))
    assert found.usage
    assert (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens) == (220, 10, 230)
    chunks: Any = client_of(url, chat="v").chat.completions.create(
        model="agent", messages=listed("human: Oslo?"), stream=True, stream_options={"include_usage": True}
    )
    *others, last = chunks
    assert (last.choices, last.usage.total_tokens) == ([], 230)
    assert {one.usage for one in others} == {None}
    assert "".join(one.choices[0].delta.content or "" for one in others) == "sunny"


def test_eight_at_once(serve: Serve, memory: Memory) -> None:
    model = Scripted.says(*[lambda messages: f"to {messages[-1].text}"] * 16)
    url = serve(agent_app(memory, model)[1])

    async def ask(client: Any, at: int, *lines: str) -> str:
        chunks = await client.chat.completions.create(
            model="agent", messages=listed(*lines), stream=True, extra_headers={"x-conversation-id": f"c{at}"}
        )
        return joined([chunk async for chunk in chunks])

    async def all_at_once() -> list[str]:
        async with AsyncOpenAI(
            base_url=url, api_key=MAYA, max_retries=0, http_client=httpx2.AsyncClient(verify=False)
        ) as client:
            first = await asyncio.gather(*[ask(client, at, f"human: {at}") for at in range(8)])
            asked = [[f"human: {at}", f"ai: {first[at]}", f"human: {at}+"] for at in range(8)]
            return await asyncio.gather(*[ask(client, at, *asked[at]) for at in range(8)])

    assert [one.strip() for one in asyncio.run(all_at_once())] == [f"to {at}+" for at in range(8)]
    for at in range(8):
        assert trimmed(memory, f"c{at}") == [f"human: {at}", f"ai: to {at}", f"human: {at}+", f"ai: to {at}+"]


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_questions_that_begin_one_chat_at_once_are_all_stored(
    is_streamed: bool, servers: int, serve: Serve, bench: Bench, memory: Memory
) -> None:
    count = 6
    together = threading.Barrier(count)

    def answer(messages: list[BaseMessage]) -> str:
        together.wait(10)
        return f"to {own(messages)[-1].text}"

    urls = [serve(agent_app(bench.memory(), *[answer] * count)[1]) for _ in range(servers)]

    def ask(at: int) -> str:
        asked: Any = {"model": "agent", "messages": listed(f"human: {at}"), "stream": is_streamed}
        found: Any = client_of(urls[at % servers]).chat.completions.create(**asked)
        return (joined(found) if is_streamed else str(found.choices[0].message.content)).strip()

    with ThreadPoolExecutor(count) as pool:
        assert [*pool.map(ask, range(count))] == [f"to {at}" for at in range(count)]
    stored = [line.strip() for line in said(memory.history.messages("t", superseded=True))]
    assert sorted(stored) == sorted(line for at in range(count) for line in (f"human: {at}", f"ai: to {at}"))


@pytest.mark.parametrize("known", [[], ["human: old"]], ids=["new", "known"])
def test_a_chat_that_begins_again_during_its_first_answer_loses_nothing(
    known: list[str], serve: Serve, memory: Memory
) -> None:
    urls: list[str] = []

    def slow(_: list[BaseMessage]) -> str:
        assert Window("plain", urls[0]).ask("two") == "fast"
        return "slow"

    urls.append(serve(agent_app(memory, *["before" for _ in known], slow, "fast")[1]))
    for line in known:
        Window("plain", urls[0]).send(line)
    assert Window("plain", urls[0]).ask("one") == "slow"
    stored = said(memory.history.messages("t", superseded=True))
    lines = [*known, *["ai: before" for _ in known], "human: one", "ai: slow", "human: two", "ai: fast"]
    assert sorted(stored) == sorted(lines)


def test_the_model_for_tasks_sees_no_messages_and_saves_nothing(serve: Serve, memory: Memory) -> None:
    model, app = agent_app(memory, "two", "A title")
    window = Window("plain", serve(app))
    window.ask("one")
    answer = client_of(window.url).chat.completions.create(model="agent-tasks", messages=listed("human: name it"))
    assert answer.choices[0].message.content == "A title"
    assert said(model.seen[-1]) == ["human: name it"]
    assert trimmed(memory) == ["human: one", "ai: two"]
    assert [thread.id for thread in memory.threads.list()] == ["t"]
