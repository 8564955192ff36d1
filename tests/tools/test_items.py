"""Single items of lists: the tool adds, changes and removes them without the whole list."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel, Field

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._documents.formats import JsonFormat
from langchain_workingmem._documents.schemas import schema_of
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.types import Invoke, Make
from tests.tools.samples import Scripted, calls, known, results, update_tool, with_memory


class Toy(BaseModel):
    name: str
    price: float | None = None


class Pet(BaseModel):
    id: int = Field(json_schema_extra={"key": True})
    name: str | None = None
    age: int | None = None
    foods: list[str] = []


class Home(BaseModel):
    rooms: list[str] = []


class Owner(BaseModel):
    name: str | None = None
    languages: list[str] = []
    toys: list[Toy] = []
    pets: list[Pet] = []
    home: Home = Home()


KNOWN: dict[str, Any] = {
    "name": "Ann",
    "languages": ["German", "v1.2", "a/b"],
    "toys": [{"name": "ball", "price": 2.0}, {"name": "kite"}],
    "pets": [{"id": 7, "name": "Rex", "age": 3, "foods": ["fish"]}, {"id": 8, "name": "Mia"}],
    "home": {"rooms": ["hall"]},
}


@pytest.fixture
def owner(make_memory: Make) -> Memory:
    memory = with_memory(make_memory, schema=Owner)
    memory.working_memory.update(KNOWN, resource_id="ann")
    return memory


# ---------------------------------------------------------------------- what a call does

CALLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "an item is added": (
        {"memory": {"languages": ["Danish", "German"]}, "add_to_lists": True},
        {"languages": ["German", "v1.2", "a/b", "Danish"]},
    ),
    "below a field": ({"memory": {"home": {"rooms": ["attic"]}}, "add_to_lists": True}, {"home": {"rooms": ["hall", "attic"]}}),
    "without the flag a list is replaced": ({"memory": {"languages": ["Danish"]}, "add_to_lists": None}, {"languages": ["Danish"]}),
    "an item is removed": ({"clear": ["/languages/German"]}, {"languages": ["v1.2", "a/b"]}),
    "with dots": ({"clear": ["languages.v1.2", "home.rooms.hall"]}, {"languages": ["German", "a/b"], "home": {"rooms": []}}),
    "with a slash in it": ({"clear": ["/languages/a~1b"]}, {"languages": ["German", "v1.2"]}),
    "an object by its key": ({"clear": ["/pets/7"]}, {"pets": KNOWN["pets"][1:]}),
    "an object by what only it has": ({"clear": ["/toys/kite"]}, {"toys": KNOWN["toys"][:1]}),
    "an item in an item": ({"clear": ["/pets/7/foods/fish"]}, {"pets": [{**KNOWN["pets"][0], "foods": []}, KNOWN["pets"][1]]}),
    "a field of an item": ({"clear": ["pets.Mia.name"]}, {"pets": [KNOWN["pets"][0], {"id": 8}]}),
    "an item with a key is changed": (
        {"memory": {"pets": [{"id": 7, "name": None, "age": 4, "foods": []}]}, "add_to_lists": True},
        {"pets": [{**KNOWN["pets"][0], "age": 4}, KNOWN["pets"][1]]},
    ),
    "a list in it grows": (
        {"memory": {"pets": [{"id": 7, "foods": ["rice"]}]}, "add_to_lists": True},
        {"pets": [{**KNOWN["pets"][0], "foods": ["fish", "rice"]}, KNOWN["pets"][1]]},
    ),
    "an item is changed in its place": (
        {"memory": {"toys": [{"name": "ball", "price": 3.0}]}, "clear": ["/toys/ball"], "add_to_lists": True},
        {"toys": [{"name": "ball", "price": 3.0}, {"name": "kite"}]},
    ),
    "null deletes nothing": (
        {"memory": {"name": None, "languages": None, "toys": [{"name": "top", "price": None}]}, "add_to_lists": True},
        {"toys": [*KNOWN["toys"], {"name": "top"}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "changed"), CALLS.values(), ids=CALLS)
def test_a_call_changes_the_item_and_nothing_else(owner: Memory, arguments: Any, changed: Any) -> None:
    answer = update_tool(owner).invoke(arguments)
    assert "is updated" in answer
    assert known(owner) == {**KNOWN, **changed}


@pytest.mark.parametrize("mode", ["merge", "append", "replace"])
def test_items_are_added_and_removed_in_each_mode(make_memory: Make, mode: str) -> None:
    memory = with_memory(make_memory, schema=Owner, mode=mode)
    memory.working_memory.update(KNOWN, resource_id="ann", mode="replace")
    update = update_tool(memory)
    update.invoke({"memory": {"languages": ["Danish"]}, "clear": ["/languages/German"], "add_to_lists": True})
    update.invoke({"clear": ["/pets/Rex"]})
    assert known(memory) == {**KNOWN, "languages": ["Danish", "v1.2", "a/b"], "pets": KNOWN["pets"][1:]}


MISTAKES = {
    "/languages/Dutch": ["'Dutch'", "not by its position", "German, v1.2, a/b"],
    "languages.0": ["'0'", "not by its position"],
    "/pets/1": ["'1'", "7, 8"],
    "/toys/top/price": ["'top'", "ball"],
    "/friends/Bob": ["'/friends/Bob'", "name what is there", "languages"],
}


@pytest.mark.parametrize(("name", "said"), MISTAKES.items(), ids=MISTAKES)
def test_a_bad_name_changes_nothing_and_tells_the_good_ones(owner: Memory, name: str, said: list[str]) -> None:
    answer = update_tool(owner).invoke({"memory": {"name": "Bob"}, "clear": [name]})
    assert all(part in answer for part in [*said, "nothing was changed"])
    assert known(owner) == KNOWN


def test_a_value_of_two_items_names_neither(owner: Memory) -> None:
    update = update_tool(owner)
    update.invoke({"memory": {"toys": [{"name": "bat", "price": 2.0}]}, "add_to_lists": True})
    answer = update.invoke({"clear": ["/toys/2.0"]})
    assert "2 items" in answer
    assert "only it has" in answer
    assert len(known(owner)["toys"]) == 3


def test_a_number_inside_an_object_that_may_be_a_position_names_nothing(owner: Memory) -> None:
    update = update_tool(owner)
    toys = [{"name": "kite", "price": 1}, {"name": "ball", "price": 5}, {"name": "kite", "price": 0}]
    update.invoke({"memory": {"toys": toys}})
    answer = update.invoke({"clear": ["/toys/1"]})  # the ball, or the kite for 1
    assert all(
        part in answer for part in ["'1'", "value or a position", "nothing was changed", '{"name": "kite", "price": 1}']
    )
    assert known(owner)["toys"] == toys
    update.invoke({"clear": ["/toys/5"]})  # there is no such position
    update.invoke({"clear": ['/toys/{"name": "kite", "price": 1}']})
    assert known(owner)["toys"] == toys[2:]
    update.invoke({"clear": ["/toys/0"]})  # both mean the same
    assert known(owner)["toys"] == []
    assert "there is no item" in update.invoke({"clear": [f"/toys/{'9' * 5000}"]})


def test_the_result_is_validated(owner: Memory) -> None:
    update = update_tool(owner)
    assert "age" in update.invoke({"memory": {"pets": [{"id": 7, "age": "old"}]}, "add_to_lists": True})
    assert "name" in update.invoke({"clear": ["/toys/kite/name"]})  # required
    assert known(owner) == KNOWN


@pytest.mark.parametrize(("schema", "has"), [(Owner, True), (Toy, False), ({"type": "object"}, False)])
def test_only_a_schema_with_lists_pays_for_it(make_memory: Make, schema: Any, has: bool) -> None:
    tool = update_tool(with_memory(make_memory, schema=schema))
    assert ("add_to_lists" in tool.args) is has
    assert ("add_to_lists" in tool.description) is has


# ---------------------------------------------------------------------- whole applications


def test_two_users_change_single_items_in_parallel_calls(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, schema=Owner)
    for user in ("ann", "bob"):
        memory.working_memory.update(KNOWN, resource_id=user)
    script: list[Any] = [
        calls(
            {"memory": {"languages": ["Danish"]}, "add_to_lists": True},
            {"memory": {"languages": ["Dutch"]}, "add_to_lists": True},
            {"clear": ["/languages/German"]},
            {"memory": {"toys": [{"name": "ball", "price": 9.0}]}, "clear": ["/toys/ball"], "add_to_lists": True},
            {"memory": {"pets": [{"id": 9, "name": "Tom"}]}, "add_to_lists": True},
        ),
        calls({"memory": {"toys": [{"name": "ball", "price": 8.0}]}, "clear": ["/toys/ball"], "add_to_lists": True}),
        AIMessage("noted"),
    ]
    agent = create_agent(Scripted(responses=script), middleware=[MemoryMiddleware(memory)])
    config = {"configurable": {"thread_id": "t", "resource_id": "ann"}}
    found = invoke(agent, {"messages": [HumanMessage("many things")]}, config)
    assert all("is updated" in one.text for one in results(found["messages"]))
    after = known(memory)
    assert sorted(after["languages"]) == ["Danish", "Dutch", "a/b", "v1.2"]
    assert after["toys"] == [{"name": "ball", "price": 8.0}, {"name": "kite"}]
    assert [one["id"] for one in after["pets"]] == [7, 8, 9]
    assert known(memory, "bob") == KNOWN


def test_what_others_changed_or_removed_since_the_prompt(owner: Memory) -> None:
    """An object that somebody else has changed is not lost, and one that is gone since is no mistake."""
    ids: dict[str, Any] = {"thread_id": "t", "resource_id": "ann"}
    owner.context("Hi", **ids)  # the model is shown all
    update = update_tool(owner, **ids)
    owner.working_memory.update({"toys": KNOWN["toys"][:1]}, resource_id="ann")
    assert "nothing new" in update.invoke({"clear": ["/toys/kite"]})
    owner.context("Hi", **ids)
    owner.working_memory.update({"toys": [{"name": "ball", "price": 5.0}]}, resource_id="ann")
    change = {"memory": {"toys": [{"name": "ball", "price": 3.0}]}, "clear": ["/toys/ball"], "add_to_lists": True}
    answer = update.invoke(change)
    assert "5.0" in answer
    assert "has changed since" in answer
    assert known(owner)["toys"] == [{"name": "ball", "price": 5.0}]
    assert "is updated" in update.invoke(change)
    assert known(owner)["toys"] == [{"name": "ball", "price": 3.0}]


# ---------------------------------------------------------------------- against a plain model

WORDS = st.sampled_from(["a", "b", "c", "a.b", "x/y", "1", "ä"])
FORM = JsonFormat(schema_of(Owner))
OPERATIONS = st.lists(st.tuples(st.sampled_from(["add", "remove", "change", "pet"]), WORDS, WORDS), max_size=12)


def modelled(words: list[str], pets: dict[int, int], operation: tuple[str, str, str]) -> None:
    """Do on a plain list and a plain dict what a call of the tool does."""
    kind, one, other = operation
    if kind == "pet":
        pets[len(one)] = len(other)
    elif kind == "add":
        words += [one] * (one not in words)
    elif one in words:
        at = words.index(one)
        del words[at]
        if kind == "change" and other not in words:
            words.insert(at, other)


def called(operation: tuple[str, str, str]) -> dict[str, Any]:
    kind, one, other = operation
    name = "/languages/" + one.replace("~", "~0").replace("/", "~1")
    if kind == "pet":
        return {"memory": {"pets": [{"id": len(one), "age": len(other)}]}, "add_to_lists": True}
    if kind == "add":
        return {"memory": {"languages": [one]}, "add_to_lists": True}
    if kind == "remove":
        return {"clear": [name]}
    return {"memory": {"languages": [other]}, "clear": [name], "add_to_lists": True}


@given(OPERATIONS)
def test_any_edits_give_what_a_plain_list_gives(operations: list[tuple[str, str, str]]) -> None:
    words, pets, text = list[str](), dict[int, int](), ""
    for operation in operations:
        modelled(words, pets, operation)
        arguments = called(operation)
        try:
            text = FORM.apply(
                text, arguments.get("memory", {}), None, arguments.get("clear", []), adds="add_to_lists" in arguments
            )
        except WorkingMemoryValidationError:
            assert operation[0] in {"remove", "change"}
        found = FORM.value(text) or Owner()
        assert found.languages == words
        assert {one.id: one.age for one in found.pets} == pets


def test_interleaved_writers_lose_no_item(server: EmbeddedRedis, prefix: str) -> None:
    """Two processes' worth of writers: what each adds is there, what each removes is gone, whoever was faster."""
    options = WorkingMemoryOptions(schema=Owner)
    with Memory(server.url, key_prefix=prefix, working_memory=options) as one:
        with Memory(server.url, key_prefix=prefix, working_memory=options) as other:
            one.working_memory.update({"languages": [f"old{at}" for at in range(10)]}, resource_id="ann")

            def write(number: int) -> str:
                update = update_tool((one, other)[number % 2])
                if number % 5 == 0:
                    return str(update.invoke({"clear": [f"/languages/old{number // 5}"]}))
                return str(update.invoke({"memory": {"languages": [f"new{number}"]}, "add_to_lists": True}))

            with ThreadPoolExecutor(8) as pool:
                assert all("is updated" in answer for answer in pool.map(write, range(40)))
        kept = {f"old{at}" for at in range(8, 10)} | {f"new{at}" for at in range(40) if at % 5}
        assert sorted(known(one)["languages"]) == sorted(kept)
