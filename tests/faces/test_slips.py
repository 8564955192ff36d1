"""What people write by mistake, and what the error tells them; and what they may write as well."""

# mypy: disable-error-code="arg-type"
from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph

from langchain_workingmem import Memory, OptionError, PerCall
from langchain_workingmem.adapters.deepagents import FilesBackend
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.models import CONFIG, Bench, Scripted, ask, remembered

IDS: Any = {"thread_id": "t", "user_id": "ann"}


class Chat(TypedDict):
    chat: Annotated[list[Any], "no messages"]


def loaded(memory: Memory) -> object:
    graph = StateGraph(Chat).add_node("load", memory.load_node()).set_entry_point("load").compile()
    return graph.invoke({"chat": []}, CONFIG)


SLIPS: dict[str, tuple[Callable[[Memory], object], str]] = {
    "a state without messages": (loaded, "no channel `messages`: give it messages"),
    "one tool": (lambda memory: MemoryMiddleware(memory, tools="search_memory"), "tools='search_memory': use a list"),
    "an unknown role": (lambda memory: memory.save_turn([("bot", "hi")], **IDS), "'bot'.*of user, assistant or tool"),
    "one thread": (
        lambda memory: memory.threads.backfill(InMemorySaver(), user_id="ann", thread_ids="t"),
        "thread_ids='t': use a list of ids",
    ),
    "an index by its name": (lambda _: RedisMemoryStore(index="local"), "index is of type str: pass a dict"),
    "a ttl as a number": (lambda _: RedisMemoryStore(ttl=60), "ttl is of type int: pass a dict"),
}


@pytest.mark.parametrize(("slip", "words"), SLIPS.values(), ids=SLIPS)
def test_a_slip_names_its_remedy(plain: Memory, slip: Callable[[Memory], object], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        slip(plain)


def test_restrictions_of_a_call_may_be_an_object(bench: Bench) -> None:
    memory = bench.recalling()
    memory.save_turn([("user", "my dog is Nougat")], thread_id="old", user_id="ann")
    model = Scripted.says("hm", "ah")
    agent = create_agent(model, [], middleware=[MemoryMiddleware(memory)])
    for less in (PerCall(recall=False), PerCall()):
        bench.run(agent, ask("who is my dog?"), {"configurable": {**IDS, "memory": less}})
    assert ["Nougat" in remembered(seen) for seen in model.seen] == [False, True]


def test_the_memory_of_deepagents_stays_beside_ours(bench: Bench) -> None:
    memory = bench.recalling()
    memory.save_turn([("user", "my dog is Nougat")], thread_id="old", user_id="ann")
    memory.files.write("/AGENTS.md", "Answer in rhymes.", user_id="ann")
    model = Scripted.says("a frog")
    middleware = [MemoryMiddleware(memory)]
    agent = create_deep_agent(model, backend=FilesBackend(memory), memory=["/AGENTS.md"], middleware=middleware)
    bench.run(agent, ask("who is my dog?"), CONFIG)
    assert "Answer in rhymes." in str(model.seen[0])
    assert "Nougat" in remembered(model.seen[0])
