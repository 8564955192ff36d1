"""What was said is kept when nobody waits for the answer: a closed stream, a cancelled task, failing tools."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.tools import tool

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling

pytestmark = pytest.mark.both_faces


def texts(memory: Memory, thread: str = "t") -> list[str]:
    return [str(message.text) for message in memory.history.messages(thread)]


def speaks(chunk: Any) -> bool:
    """Tell whether the model is heard in what is streamed."""
    return isinstance(chunk, tuple) or "model" in chunk


async def heard(stream: Any) -> None:
    async for chunk in stream:
        if speaks(chunk):
            break
    await stream.aclose()


@pytest.mark.parametrize("mode", ["messages", "updates"])
def test_a_stream_that_is_closed_keeps_what_the_user_said(bench: Bench, mode: Any) -> None:
    memory = bench.memory()
    agent = agent_of(Scripted.says("a long answer", "you have an allergy"), memory)
    if bench.face == "sync":
        stream = agent.stream(ask("I am allergic to nuts"), CONFIG, stream_mode=mode)
        next(filter(speaks, stream))
        stream.close()
    else:
        bench.runner.run(heard(agent.astream(ask("I am allergic to nuts"), CONFIG, stream_mode=mode)))
    wait_until(lambda: texts(memory)[:1] == ["I am allergic to nuts"])
    bench.run(agent, ask("What am I allergic to?"))
    assert texts(memory)[0] == "I am allergic to nuts"
    assert texts(memory)[-2:] == ["What am I allergic to?", "you have an allergy"]


async def test_a_cancelled_call_keeps_what_the_user_said(server: EmbeddedRedis, prefix: str) -> None:
    memory, started = Memory(server.url, key_prefix=prefix), asyncio.Event()

    class Slow(Scripted):
        async def _agenerate(self, *_: Any, **__: Any) -> Any:
            started.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(agent_of(Slow.says("never"), memory).ainvoke(ask("I am allergic to nuts"), CONFIG))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [message.text for message in await memory.history.amessages("t")] == ["I am allergic to nuts"]
    await memory.aclose()


@tool
async def breaks(number: int) -> str:
    """Break."""
    raise LookupError(number)


async def test_tools_that_fail_side_by_side_leave_what_led_to_them(server: EmbeddedRedis, prefix: str) -> None:
    """LangGraph cancels the others when the first one has raised: also the one that is saving."""

    class Slow(WordEmbeddings):
        async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
            await asyncio.sleep(0.1)
            return self.embed_documents(texts)

    memory = Memory(server.url, key_prefix=prefix, embeddings=Slow(), recall=RecallOptions())
    calls = calling(*(("breaks", {"number": number}) for number in range(8)), id="a", text="I will look")
    with pytest.raises(LookupError):
        await agent_of(Scripted(script=[calls]), memory, tools=[breaks]).ainvoke(ask("Look"), CONFIG)
    assert [one.text for one in await memory.history.amessages("t")] == ["Look", "I will look"]
    await memory.aclose()
