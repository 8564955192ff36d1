"""The checkpoints of a deleted user go with the threads, and those of others stay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory, OptionError, UserDeletedError
from langchain_workingmem._redis.keys import Keys
from tests.helpers.models import Bench, Scripted, agent_of, ask, configured, said

Delete = Callable[..., Any]


class Breaking(InMemorySaver):
    """Fails from some thread on, until it is mended."""

    left = 1

    def delete_thread(self, thread_id: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError("the database of the checkpoints is gone")
        super().delete_thread(thread_id)


@pytest.fixture
def delete(bench: Bench) -> Delete:
    if bench.face == "sync":
        return lambda memory, user, **arguments: memory.users.delete(user, **arguments)
    return lambda memory, user, **arguments: bench.runner.run(memory.users.adelete(user, **arguments))


def talk(bench: Bench, saver: Any, *, threads: int = 3, **options: Any) -> tuple[Memory, Any, Scripted]:
    """Let two users say a secret in threads of theirs, and return memory, agent and model."""
    memory = bench.memory(**options)
    model = Scripted(script=["noted"] * threads * 2)
    agent = agent_of(model, memory, checkpointer=saver)
    for user in ("maya", "jonas"):
        for at in range(threads):
            bench.run(agent, ask(f"my secret is 42, says {user}"), configured(f"{user} {at}", user))
    return memory, agent, model


@pytest.mark.both_faces
@pytest.mark.parametrize("create_index", [True, False], ids=["index", "no index"])
def test_the_model_is_not_shown_what_a_deleted_user_has_said(bench: Bench, delete: Delete, create_index: bool) -> None:
    saver = InMemorySaver()
    memory, agent, model = talk(bench, saver, create_index=create_index)
    assert delete(memory, "nobody").checkpoints == "not asked"
    report = delete(memory, "maya", checkpointer=saver)
    assert (report.threads, report.verified, report.checkpoints) == (3, True, "deleted")
    model.script += ["hello"] * 2
    bench.run(agent, ask("what is my secret?"), configured("maya 1", "maya"))
    assert said(model.seen[-1]) == ["human: what is my secret?"]
    bench.run(agent, ask("what is my secret?"), configured("jonas 1", "jonas"))
    assert said(model.seen[-1])[0] == "human: my secret is 42, says jonas"


@pytest.mark.both_faces
def test_a_checkpointer_that_fails_half_way_leaves_what_a_second_call_needs(bench: Bench, delete: Delete) -> None:
    saver = Breaking()
    memory, _, _ = talk(bench, saver)
    with pytest.raises(OSError, match="database of the checkpoints") as failure:
        delete(memory, "maya", checkpointer=saver)
    assert "not finished" in failure.value.__notes__[0]
    assert memory.threads.list(user_id="maya").total == 2
    with pytest.raises(UserDeletedError):
        memory.history.append([HumanMessage("x")], thread_id="maya 0", user_id="maya")
    saver.left = 9
    report = delete(memory, "maya", checkpointer=saver)
    assert (report.threads, report.verified, report.checkpoints) == (2, True, "deleted")
    assert set(saver.storage) == {"jonas 0", "jonas 1", "jonas 2"}


def test_the_checkpoints_of_a_thread_that_was_handed_over_stay(bench: Bench) -> None:
    saver = InMemorySaver()
    memory, _, _ = talk(bench, saver, embeddings=bench.embeddings)
    with redis.Redis.from_url(bench.url) as raw:  # its vectors still name the former owner
        raw.hset(Keys(bench.prefix).of("maya 1").thread, "user", "jonas")
    assert memory.users.delete("maya", checkpointer=saver).threads == 2
    assert set(saver.storage) == {"maya 1", "jonas 0", "jonas 1", "jonas 2"}


def test_a_checkpointer_that_cannot_be_asked_is_refused_before_anything_is_deleted(bench: Bench) -> None:
    class OnlyAsync(BaseCheckpointSaver[str]):
        async def adelete_thread(self, thread_id: str) -> None: ...

    class OnlySync(BaseCheckpointSaver[str]):
        def delete_thread(self, thread_id: str) -> None:
            gone.append(thread_id)

    gone: list[str] = []
    memory, _, _ = talk(bench, None, threads=1)
    wrong: Any = {
        r"OnlyAsync has no delete_thread.*await the async twin": OnlyAsync(),
        "checkpointer is of type bool: pass the checkpointer of your graph": True,
    }
    for words, checkpointer in wrong.items():
        with pytest.raises(OptionError, match=words):
            memory.users.delete("maya", checkpointer=checkpointer)
    memory.history.append([HumanMessage("x")], thread_id="maya 0", user_id="maya")
    asyncio.run(memory.users.adelete("maya", checkpointer=OnlySync()))  # in a thread
    assert gone == ["maya 0"]
