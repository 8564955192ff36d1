"""Where `MemoryMiddleware` finds its ids, and that the memories of users never mix."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import WorkingMemoryOptions
from langchain_workingmem.errors import IdError, ThreadOwnershipError
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.examples import sample
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, own, remembered, weather
from tests.helpers.odd_ids import NAMES, secret, secrets_in
from tests.helpers.trips import Trips
from tests.middleware.samples import UPDATE, seed, stored

pytestmark = pytest.mark.in_turn("face")

# ---------------------------------------------------------------------- ids


@dataclass
class Context:
    thread_id: str
    user_id: str


class Keys(TypedDict):
    thread_id: str
    user_id: str


@pytest.mark.parametrize(
    ("schema", "context"),
    [(Context, Context("t", "ann")), (Keys, Keys(thread_id="t", user_id="ann"))],
    ids=["dataclass", "TypedDict"],
)
def test_ids_come_from_the_context(bench: Bench, schema: Any, context: Any) -> None:
    memory = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says(calling((UPDATE, {"memory": "a dog"}), id="a"), "noted")
    bench.run(agent_of(model, memory, context_schema=schema), ask("hello"), None, context=context)
    thread = memory.threads.get("t")
    assert thread is not None
    assert (thread.user_id, thread.message_count) == ("ann", 4)
    assert memory.working_memory.get(user_id="ann").text == "a dog"


@pytest.mark.parametrize("on_error", ["raise", "log"])
def test_a_thread_of_somebody_is_not_reached_by_its_id_alone(bench: Bench, on_error: Any) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    seed(memory, "one", "two")
    model = Scripted.says("four")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory, on_error=on_error)])
    with pytest.raises(ThreadOwnershipError, match="pass the owner's user_id"):
        bench.run(agent, ask("my cat"), configured("t"))
    assert model.seen == []
    assert stored(memory) == ["human: one", "ai: two"]


@pytest.mark.parametrize("user", ["ann", None], ids=["known user", "only a thread"])
def test_a_turn_with_a_tool_costs_five_round_trips(bench: Bench, trips: Trips, user: str | None) -> None:
    """Read the context, fetch what is recalled, save the question; read working memory; save the rest."""
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    owner = user or "t"
    seed(memory, "my cat is named Molly", "sweet", thread="pets", user=owner)
    seed(memory, "one", "two", user=owner)
    turns = [(calling(("weather", {"city": "Oslo"}), id=id), "hi") for id in ("a", "b")]
    agent = agent_of(Scripted.says(*turns[0], *turns[1]), memory, tools=[weather])
    assert trips.of(lambda: bench.run(agent, ask("my cat"), configured("t", user))) == 5


@pytest.mark.parametrize("on_error", ["raise", "log"])
def test_a_missing_thread_is_an_error_that_names_the_remedy(bench: Bench, on_error: Any) -> None:
    model = Scripted.says("hi")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(bench.memory(), on_error=on_error)])
    with pytest.raises(IdError, match=r"thread_id.*configurable"):
        bench.run(agent, ask("hello"), configured_without_thread())
    assert model.seen == []


def configured_without_thread() -> Any:
    return {"configurable": {"user_id": "ann"}}


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
        bench.run(agent, ask("what is the pin of mine"), configured(f"new {name}"[:250], name))
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
