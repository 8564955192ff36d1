"""Where `MemoryMiddleware` finds its ids, and that the memories of users never mix."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import WorkingMemoryOptions
from tests.helpers.examples import sample
from tests.helpers.models import Bench, Scripted, agent_of, ask, configured, own, remembered
from tests.helpers.odd_ids import NAMES, secret, secrets_in
from tests.middleware.samples import stored

pytestmark = pytest.mark.in_turn("face")


USERS = [f"user{at}" for at in range(8)]


@pytest.mark.parametrize("names", [sample(NAMES[::3], 12), sample(NAMES[1::3], 12)], ids=["some", "others"])
def test_names_that_look_alike_never_mix_in_an_agent(bench: Bench, names: list[str]) -> None:
    """Each tells its secret in a thread of its own name, and asks in a new one."""
    assert len(names) >= 12
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says(*[echo] * 2 * len(names))
    agent = agent_of(model, memory, checkpointer=InMemorySaver())
    for name in names:
        memory.working_memory.update(f"knows {secret(name)}", user_id=name)
        bench.run(agent, ask(f"the pin of mine is {secret(name)}"), configured(name, name))
    for name in names:
        bench.run(agent, ask("what is the pin of mine"), configured(f"new {names.index(name)}", name))
        assert secrets_in(model.seen[-1]) == {name}
        assert "the pin of mine is" in str(model.seen[-1])
        assert secrets_in(memory.history.messages(name)) == {name}


def echo(messages: list[Any]) -> str:
    return f"heard {own(messages)[-1].text}"


def test_users_at_once_in_one_agent_never_mix(bench: Bench) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    memory.setup()
    for user in USERS:
        memory.working_memory.update(f"this is {user}.", user_id=user)
    model = Scripted.says(*[echo] * 3 * len(USERS))
    agent = agent_of(model, memory, checkpointer=InMemorySaver())
    configs = {user: configured(f"thread of {user}", user) for user in USERS}
    for turn in range(3):
        given = {user: ask(f"{turn} {user}.") for user in USERS}
        if bench.face == "sync":
            with ThreadPoolExecutor(len(USERS)) as pool:
                list(pool.map(lambda user, given=given: agent.invoke(given[user], configs[user]), USERS))
        else:
            bench.runner.run(_together([agent.ainvoke(given[user], configs[user]) for user in USERS]))
    for user in USERS:
        lines = [[f"human: {turn} {user}.", f"ai: heard {turn} {user}."] for turn in range(3)]
        assert stored(memory, f"thread of {user}") == [line for pair in lines for line in pair]
    for messages in model.seen:
        (user,) = [user for user in USERS if f"{user}." in own(messages)[-1].text]
        assert f"this is {user}." in remembered(messages)
        assert [one for one in USERS if f"{one}." in str(messages)] == [user]


async def _together(runs: list[Any]) -> None:
    await asyncio.gather(*runs)
