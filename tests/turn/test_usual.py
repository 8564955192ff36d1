"""The short way of `turn.lua`, `usual.lua`: it says of every turn what the whole script says, or leaves it to that."""

from __future__ import annotations

import random
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory
from langchain_workingmem._engine.plan import SCRIPT_SOURCES
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.turn import TURN
from tests.helpers.types import Make

WHOLE = Script("turn/turn", "header", "history/branch")
# nil where the short way leaves a turn to the whole script
SHORT = Script("turn/usual", "header").source + "\nreturn false"


def conversation(rng: random.Random, turns: int) -> list[BaseMessage]:
    said: list[BaseMessage] = []
    for turn in range(turns):
        said += [HumanMessage(f"q{turn}-{at}", id=f"q{turn}-{at}") for at in range(rng.choice([0, 1, 1, 1, 2]))]
        for call in range(rng.choice([0, 0, 1, 3])):
            id = f"{turn}-{call}"
            said.append(AIMessage("", id=f"c{id}", tool_calls=[{"name": "look", "args": {}, "id": id}]))
            said.append(ToolMessage("found", id=f"r{id}", tool_call_id=id))
        said += [AIMessage(f"a{turn}-{at}", id=f"a{turn}-{at}") for at in range(rng.choice([0, 1, 1, 2]))]
    return said


def replies(memory: Memory, thread_id: str, *arguments: Any) -> list[Any]:
    """Return what the whole script, the one that is sent, and the short way reply."""
    client = memory._core.runner.client
    keys = memory._core.state.keys.of(thread_id).all
    sources = (WHOLE.source, SCRIPT_SOURCES[TURN.sha], SHORT)
    return [client.execute_command("EVAL", source, len(keys), *keys, *arguments) for source in sources]


@pytest.mark.parametrize("seed", range(6))
def test_the_short_way_replies_what_the_whole_script_does(make_memory: Make, face: str, seed: int) -> None:
    if face == "async":
        pytest.skip("the script alone")
    memory, rng = make_memory(), random.Random(seed)
    answered = 0
    for number in range(25):
        thread_id = f"t{number}"
        said = conversation(rng, rng.choice([0, 1, 3, 12]))
        if said:
            memory.history.append(said, thread_id=thread_id, user_id="u")
        if said and rng.random() < 0.2:
            memory.history.truncate(thread_id, after=rng.choice(said).id or "", user_id="u")
        if said and rng.random() < 0.2:
            memory.history.delete([rng.choice(said).id or ""], thread_id=thread_id)
        for _ in range(8):
            id = rng.choice(["new", "new", "", *(one.id or "" for one in said[:2])])
            options = [rng.choice(["", 0, 1, 2, 3, 10, 50]), rng.choice([1, 1, 2, 5, 10])]
            rare = rng.choice(
                [[0, "", "", 0]] * 5 + [[1, "", "", 0], [0, ",ai,", "", 0], [0, "", 50, 0], [0, "", "", 1]]
            )
            entries = rng.choice([*[[id, "qabc"]] * 8, [id, "aabc"], [id, ""], [], [id, "qabc", "b", "qdef"]])
            arguments = [rng.choice(["u", "u", ""]), rng.choice(["list", "state", "part"]), *options, *rare, *entries]
            whole, sent, short = replies(memory, thread_id, *arguments)
            assert sent == whole, (thread_id, arguments)
            assert short in (whole, None), (thread_id, arguments)
            answered += short is not None
    assert answered > 10  # the usual turns are among them


def test_the_thread_of_somebody_else_is_left_to_the_whole_script(make_memory: Make, face: str) -> None:
    if face == "async":
        pytest.skip("the script alone")
    memory = make_memory()
    memory.history.append([HumanMessage("hello", id="h")], thread_id="t", user_id="u")
    keys = memory._core.state.keys.of("t").all
    arguments = ["v", "list", 10, 10, 0, "", "", 0, "new", "qabc"]
    assert memory._core.runner.client.execute_command("EVAL", SHORT, len(keys), *keys, *arguments) is None
