"""A LangGraph program that has run for a while gets a memory: whole applications with a checkpointer, for two users."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.redis import RedisSaver

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered, said, weather
from tests.helpers.programs import Forked, run

pytestmark = pytest.mark.filterwarnings("ignore:get_async_redis_connection will become")
TURNS = 30
FACTS = {"ann": "my cat is named Molly", "bob": "my boat is named Kestrel"}


def has_run(bench: Bench, saver: Any, turns: int = TURNS) -> None:
    """Let an agent without memory talk with two users, each in two threads; the first turn calls a tool."""
    lines: list[Any] = []
    for _ in FACTS:
        lines += [calling(("weather", {"city": "Oslo"}), id="a"), *(f"answer {at}" for at in range(turns)), "noted"]
    agent = create_agent(Scripted.says(*lines), [weather], checkpointer=saver)
    for user, fact in FACTS.items():
        for at in range(turns):
            bench.run(agent, ask(f"question {at} of {user}"), configured(f"long of {user}", user))
        bench.run(agent, ask(fact), configured(f"pets of {user}", user))


def fill(bench: Bench, memory: Memory, saver: Any, **options: Any) -> Any:
    options = {"user_id": lambda metadata: metadata.get("user_id"), "progress": False, **options}
    if bench.face == "sync":
        return memory.threads.backfill(saver, **options)
    return bench.runner.run(memory.threads.abackfill(saver, **options))


def state_of(agent: Any, thread_id: str) -> list[Any]:
    return list(agent.get_state(configured(thread_id)).values["messages"])


def stored(memory: Memory, thread_id: str) -> list[str]:
    """What memory holds, what it has superseded included."""
    return said(memory.history.messages(thread_id, superseded=True))


@pytest.mark.in_turn("face")
def test_a_program_that_has_run_for_a_while_adopts_memory(bench: Bench) -> None:
    saver = InMemorySaver()
    has_run(bench, saver)
    memory = bench.recalling()
    report = fill(bench, memory, saver)
    assert (report.threads, report.messages, dict(report.left)) == (4, 2 * (2 * TURNS + 2 + 2), {})
    model = Scripted.says("Molly", "Kestrel", "no idea", "more", "better")
    agent = agent_of(model, memory, checkpointer=saver)
    for user, pet, name in (("ann", "cat", "Molly"), ("bob", "boat", "Kestrel")):
        bench.run(agent, ask(f"my {pet} is named"), configured(f"long of {user}", user))
        assert name in remembered(model.seen[-1])  # from the other thread of the same user
        before = said(state_of(agent, f"long of {user}"))
        assert stored(memory, f"long of {user}") == before
        assert len(before) == 2 * TURNS + 4
    bench.run(agent, ask("which cat is named Molly?"), configured("new", "bob"))
    assert "Molly" not in remembered(model.seen[-1])
    # a turn that goes on in the thread, then another answer to it
    bench.run(agent, ask("and then?", "q"), configured("long of ann", "ann"))
    last = state_of(agent, "long of ann")[-1]
    bench.run(agent, {"messages": [RemoveMessage(id=last.id)]}, configured("long of ann", "ann"))
    assert said(memory.history.messages("long of ann")) == said(state_of(agent, "long of ann"))
    assert len(stored(memory, "long of ann")) == len(state_of(agent, "long of ann")) + 1
    assert fill(bench, memory, saver).known == 5


# ---------------------------------------------------------------------- processes

FILLING = """
import sys
from langgraph.checkpoint.redis import RedisSaver
from langchain_workingmem import Memory
from langchain_workingmem.threads import copies
from tests.helpers.embeddings import WordEmbeddings

copies.BATCH = 10
write, total = copies.write, 0
def told(*args, **options):
    global total
    found = yield from write(*args, **options)
    total += len(found[0].get("new") or ())
    print(total, flush=True)
    if total >= int(sys.argv[2]):
        sys.stdin.read()  # until it is killed
    return found
copies.write = told
with RedisSaver.from_conn_string(sys.argv[1]) as saver:
    with Memory(sys.argv[1], key_prefix="memory", embeddings=WordEmbeddings()) as memory:
        print(memory.threads.backfill(saver, user_id=lambda one: one["thread_id"][-3:], progress=False), flush=True)
"""
TALKING = """
import sys
from langchain.agents import create_agent
from langgraph.checkpoint.redis import RedisSaver
from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted, ask, configured

with RedisSaver.from_conn_string(sys.argv[1]) as saver:
    with Memory(sys.argv[1], key_prefix="memory", embeddings=WordEmbeddings()) as memory:
        agent = create_agent(Scripted.says("now", "now"), middleware=[MemoryMiddleware(memory)], checkpointer=saver)
        for user in ("ann", "bob"):
            agent.invoke(ask("still there?"), configured(f"long of {user}", user))
"""


@contextmanager
def kept(bench: Bench) -> Iterator[tuple[str, Any]]:
    """A server with the checkpoints of conversations of two users."""
    with EmbeddedRedis() as server, RedisSaver.from_conn_string(server.url) as saver:
        saver.setup()
        agent = create_agent(Scripted.says(*(f"answer {at}" for at in range(200))), checkpointer=saver)
        for user, fact in FACTS.items():
            for at in range(12):
                bench.run(agent, ask(f"question {at} of {user}"), configured(f"long of {user}", user))
            bench.run(agent, ask(fact), configured(f"pets of {user}", user))
        yield server.url, saver


@pytest.mark.usefixtures("with_json")
@pytest.mark.parametrize(
    "at", [20, pytest.param(0, marks=pytest.mark.nightly), pytest.param(35, marks=pytest.mark.nightly)]
)
def test_a_backfill_that_is_killed_goes_on_in_another_process(bench: Bench, at: int) -> None:
    words, pipe = [sys.executable, "-c", FILLING], subprocess.PIPE
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with kept(bench) as (url, saver):
        reader: Any = create_agent(Scripted.says("x"), checkpointer=saver)
        if at:
            with Forked([*words, url, str(at)], stdin=pipe, stdout=pipe, env=path) as process:
                assert process.stdout
                while int(process.stdout.readline()) < at:
                    pass
                process.kill()
                process.wait()
        with Memory(url, key_prefix="memory") as memory:
            halfway = sum(thread.message_count for thread in memory.threads.list().items)
            assert at <= halfway < at + 10
            # the agent's next turns, with memory, in a process of their own
            assert run([sys.executable, "-c", TALKING, url], env=path).stderr == ""
            done = run([*words, url, "1000"], env=path)
            assert "left={}" in done.stdout, done.stderr
            again = run([*words, url, "1000"], env=path)
            assert "BackfillReport(threads=0, messages=0, known=4, skipped=0, left={})" in again.stdout, again.stderr
            for user in FACTS:
                for name in (f"long of {user}", f"pets of {user}"):
                    state = reader.get_state(configured(name)).values["messages"]
                    assert [one.id for one in memory.history.messages(name, superseded=True)] == [
                        one.id for one in state
                    ]
                    thread = memory.threads.get(name)
                    assert thread is not None
                    assert thread.user_id == user
