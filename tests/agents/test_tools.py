"""The tools of working memory, as models and graphs call them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeMessagesListChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from pydantic import BaseModel, ConfigDict, Field, create_model
from typing_extensions import TypedDict

from langchain_workingmem import Memory, OptionError, ReadOnlyError, RecallOptions, WorkingMemoryOptions
from tests.conftest import WordEmbeddings

Make = Callable[..., Memory]
Invoke = Callable[..., Any]

TEMPLATE = "# User\n- **Name**:\n- **City**:\n"
UPDATE, GET, CLEAR, SEARCH = "update_working_memory", "get_working_memory", "clear_working_memory", "search_memory"


class Home(BaseModel):
    city: str | None = None
    street: str | None = None


class Person(BaseModel):
    name: str | None = Field(None, description="What to call the person")
    age: int | None = Field(None, ge=0)
    home: Home = Home()
    work: Home | None = None
    pets: list[str] = []
    places: list[Home] = []


class Scripted(FakeMessagesListChatModel):
    """A chat model that says what it is told, and takes tools as every real one does."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=tools, **kwargs)


def calls(*arguments: dict[str, Any], name: str = UPDATE) -> AIMessage:
    """One message of a model with these tool calls."""
    return AIMessage(
        "", tool_calls=[{"name": name, "args": one, "id": f"call{at}"} for at, one in enumerate(arguments)]
    )


def results(messages: list[AnyMessage]) -> list[ToolMessage]:
    return [message for message in messages if isinstance(message, ToolMessage)]


def with_memory(make: Make, **options: Any) -> Memory:
    return make(working_memory=WorkingMemoryOptions(**options))


@pytest.fixture
def invoke(face: str, loop_runner: asyncio.Runner) -> Invoke:
    """Call a tool, an agent or a graph by `invoke` or by `ainvoke`."""

    def call(target: Any, *arguments: Any, **more: Any) -> Any:
        if face == "sync":
            return target.invoke(*arguments, **more)
        return loop_runner.run(target.ainvoke(*arguments, **more))

    return call


@pytest.fixture
def person(make_memory: Make) -> Memory:
    return with_memory(make_memory, schema=Person)


@pytest.fixture
def markdown(make_memory: Make) -> Memory:
    return with_memory(make_memory, template=TEMPLATE)


def update_tool(memory: Memory, **ids: str) -> BaseTool:
    (tool,) = memory.tools(**(ids or {"resource_id": "ann"}), include=[UPDATE])
    return tool


def known(memory: Memory, resource_id: str = "ann") -> Any:
    return json.loads(memory.working_memory.get(resource_id=resource_id).text or "{}")


# ---------------------------------------------------------------------- which tools there are


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, [UPDATE]),
        ({"tools": ("get", "update", "clear")}, [GET, UPDATE, CLEAR]),
        ({"tools": ("get", "update", "clear"), "read_only": True}, [GET]),
        ({"read_only": True}, []),
        ({"tools": ()}, []),
    ],
)
def test_the_options_say_which_tools_there_are(make_memory: Make, options: dict[str, Any], names: list[str]) -> None:
    assert [tool.name for tool in with_memory(make_memory, **options).tools()] == names


def test_recall_brings_the_search_tool(make_memory: Make) -> None:
    recall = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    assert [tool.name for tool in recall.tools()] == [SEARCH]


def test_tools_can_be_named(person: Memory) -> None:
    assert [tool.name for tool in person.tools(include=[CLEAR, GET])] == [CLEAR, GET]
    assert person.tools(include=[]) == []


def test_a_tool_that_does_not_exist_is_refused_with_those_that_do(person: Memory) -> None:
    with pytest.raises(OptionError) as caught:
        person.tools(include=["remember"])
    assert all(name in str(caught.value) for name in ("'remember'", UPDATE, GET, CLEAR, SEARCH))


@pytest.mark.parametrize("name", [UPDATE, CLEAR])
def test_a_tool_that_writes_is_refused_where_nothing_may_be_written(make_memory: Make, name: str) -> None:
    memory = with_memory(make_memory, read_only=True)
    with pytest.raises(ReadOnlyError, match=name):
        memory.tools(include=[name])
    assert [tool.name for tool in memory.tools(include=[GET])] == [GET]


def test_a_tool_of_a_part_that_is_off_says_how_to_turn_it_on(person: Memory, plain: Memory) -> None:
    with pytest.raises(OptionError, match="recall=RecallOptions"):
        person.tools(include=[SEARCH])
    for name in (UPDATE, GET, CLEAR):
        with pytest.raises(OptionError, match="working_memory=WorkingMemoryOptions"):
            plain.tools(include=[name])
    assert plain.tools() == []


# ---------------------------------------------------------------------- ways to call


def test_a_bare_invoke_writes_and_says_what_changed(person: Memory, invoke: Invoke) -> None:
    reply = invoke(update_tool(person), {"memory": {"name": "Ann", "home": {"city": "Ulm"}}})
    assert isinstance(reply, str)
    assert 'name: "Ann"' in reply
    assert 'home.city: "Ulm"' in reply
    assert known(person) == {"name": "Ann", "home": {"city": "Ulm"}}
    assert person.working_memory.get(resource_id="ann").origin == "tool"


def test_a_tool_call_gives_a_tool_message(person: Memory, invoke: Invoke) -> None:
    call = {"type": "tool_call", "id": "7", "name": UPDATE, "args": {"memory": {"name": "Ann"}}}
    reply = invoke(update_tool(person), call)
    assert isinstance(reply, ToolMessage)
    assert (reply.tool_call_id, reply.name, reply.status) == ("7", UPDATE, "success")
    assert known(person) == {"name": "Ann"}


@pytest.mark.parametrize("name", ["resource_id", "user_id"])
def test_ids_come_from_configurable(person: Memory, invoke: Invoke, name: str) -> None:
    (tool,) = person.tools()
    invoke(tool, {"memory": {"name": "Bob"}}, {"configurable": {name: "bob"}})
    assert known(person, "bob") == {"name": "Bob"}


def test_a_thread_in_configurable_means_its_memory(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, template="", scope="thread")
    (tool,) = memory.tools()
    invoke(tool, {"memory": "fact"}, {"configurable": {"thread_id": "t", "user_id": "ann"}})
    assert memory.working_memory.get(thread_id="t", resource_id="ann").text == "fact"


def test_bound_ids_win_over_those_of_the_run(person: Memory, invoke: Invoke) -> None:
    invoke(update_tool(person), {"memory": {"name": "Ann"}}, {"configurable": {"resource_id": "bob"}})
    assert known(person) == {"name": "Ann"}
    assert known(person, "bob") == {}


FORGED: dict[str, Any] = {
    "resource_id": "bob",
    "user_id": "bob",
    "thread_id": "t",
    "config": {"configurable": {"resource_id": "bob"}},
    "runtime": {"context": {"resource_id": "bob"}},
    "ids": {"resource_id": "bob"},
    "nonsense": 1,
}


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("schema", [Person, {"type": "object"}], ids=["pydantic", "json schema"])
def test_arguments_that_a_model_makes_up_reach_no_other_memory(
    make_memory: Make, invoke: Invoke, schema: Any, name: str
) -> None:
    memory = with_memory(make_memory, schema=schema)
    arguments = {"memory": {"name": "Eve"}, name: FORGED[name]}
    model = Scripted(responses=[calls(arguments), AIMessage("noted")])
    config = {"configurable": {"user_id": "ann"}}
    found = invoke(create_agent(model, memory.tools()), {"messages": [HumanMessage("hi")]}, config)
    assert found["messages"][-1].content == "noted"
    assert known(memory, "bob") == {}
    assert known(memory) in ({}, {"name": "Eve"})


def test_a_run_without_ids_tells_the_model_how_to_pass_them(person: Memory, invoke: Invoke) -> None:
    (tool,) = person.tools()
    assert "pass resource_id=" in invoke(tool, {"memory": {"name": "Ann"}})


def in_graph(tools: list[BaseTool]) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode(tools))
    builder.add_edge(START, "tools")
    return builder.compile()


def test_a_tool_node_runs_them(person: Memory, invoke: Invoke) -> None:
    graph = in_graph(person.tools(include=[UPDATE, GET, CLEAR]))
    config: RunnableConfig = {"configurable": {"thread_id": "t", "user_id": "ann"}}
    (wrote,) = results(invoke(graph, {"messages": [calls({"memory": {"name": "Ann"}})]}, config)["messages"])
    (read,) = results(invoke(graph, {"messages": [calls({}, name=GET)]}, config)["messages"])
    (cleared,) = results(invoke(graph, {"messages": [calls({}, name=CLEAR)]}, config)["messages"])
    assert (wrote.status, read.status, cleared.status) == ("success",) * 3
    assert json.loads(str(read.content)) == {"name": "Ann"}
    assert person.working_memory.get(resource_id="ann").is_empty


@dataclass
class Context:
    resource_id: str


class ContextDict(TypedDict):
    user_id: str


@pytest.mark.parametrize(
    ("schema", "context"), [(Context, Context("ann")), (ContextDict, {"user_id": "ann"})], ids=["dataclass", "dict"]
)
def test_an_agent_takes_the_ids_of_its_context(person: Memory, invoke: Invoke, schema: Any, context: Any) -> None:
    model = Scripted(responses=[calls({"memory": {"name": "Ann"}}), AIMessage("noted")])
    agent = create_agent(model, person.tools(), context_schema=schema)
    config = {"configurable": {"thread_id": "t", "user_id": "not this one"}}
    found = invoke(agent, {"messages": [HumanMessage("I am Ann")]}, config, context=context)
    assert found["messages"][-1].content == "noted"
    assert known(person) == {"name": "Ann"}


def test_an_agent_takes_the_ids_of_its_configurable(person: Memory, invoke: Invoke) -> None:
    model = Scripted(responses=[calls({"memory": {"name": "Ann"}}), AIMessage("noted")])
    agent = create_agent(model, person.tools())
    invoke(agent, {"messages": [HumanMessage("I am Ann")]}, {"configurable": {"thread_id": "t", "user_id": "ann"}})
    assert known(person) == {"name": "Ann"}


def test_an_agent_with_bound_tools_needs_no_ids(person: Memory, invoke: Invoke) -> None:
    model = Scripted(responses=[calls({"memory": {"name": "Ann"}}), AIMessage("noted")])
    invoke(create_agent(model, person.tools(resource_id="ann")), {"messages": [HumanMessage("I am Ann")]})
    assert known(person) == {"name": "Ann"}


# ---------------------------------------------------------------------- parallel calls


def test_ten_parallel_calls_of_one_message_keep_ten_facts(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    model = Scripted(responses=[calls(*({"memory": {f"fact{at}": at}} for at in range(10))), AIMessage("noted")])
    found = invoke(create_agent(model, memory.tools(resource_id="ann")), {"messages": [HumanMessage("many things")]})
    assert [message.status for message in results(found["messages"])] == ["success"] * 10
    assert known(memory) == {f"fact{at}": at for at in range(10)}
    assert memory.working_memory.get(resource_id="ann").revision == 10


def test_ten_parallel_edits_of_one_message_are_all_kept(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, template="\n".join(f"- fact {at}:" for at in range(10)))
    edits = ({"edits": [{"find": f"- fact {at}:", "replace": f"- fact {at}: yes"}]} for at in range(10))
    model = Scripted(responses=[calls(*edits), AIMessage("noted")])
    invoke(create_agent(model, memory.tools(resource_id="ann")), {"messages": [HumanMessage("many things")]})
    assert memory.working_memory.get(resource_id="ann").text == "\n".join(f"- fact {at}: yes" for at in range(10))


def test_ten_parallel_additions_to_free_text_are_all_kept(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, template="")
    model = Scripted(responses=[calls(*({"memory": f"fact {at}"} for at in range(10))), AIMessage("noted")])
    invoke(create_agent(model, memory.tools(resource_id="ann")), {"messages": [HumanMessage("many things")]})
    lines = memory.working_memory.get(resource_id="ann").text.splitlines()
    assert {line for line in lines if line} == {f"fact {at}" for at in range(10)}


# ---------------------------------------------------------------------- nothing is wiped by accident

FULL = {"name": "Ann", "age": 3, "home": {"city": "Ulm", "street": "x"}, "pets": ["cat"], "places": [{"city": "Rome"}]}
NULLS = {"name": None, "age": None, "home": None, "work": None, "pets": None, "places": None}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"memory": None, "clear": None},
        {"memory": {}, "clear": []},
        {"memory": NULLS, "clear": None},
        {"memory": {**NULLS, "home": {"city": None, "street": None}}, "clear": []},
        {"memory": {**NULLS, "name": ""}},
        {"memory": {"home": {"city": "", "street": ""}}},
        {"memory": {**NULLS, "pets": [], "places": []}, "clear": []},
        {"memory": {"pets": []}},
        {"memory": {"home": {}}},
    ],
    ids=[
        *["nothing", "null arguments", "empty arguments", "nulls", "nested nulls", "empty text", "nested empty text"],
        *["empty lists", "an empty list", "an empty object"],
    ],
)
def test_padding_wipes_nothing(person: Memory, invoke: Invoke, arguments: dict[str, Any]) -> None:
    before = person.working_memory.update(FULL, resource_id="ann")
    reply = invoke(update_tool(person), arguments)
    assert known(person) == FULL
    assert person.working_memory.get(resource_id="ann") == before
    assert "nothing was changed" in reply


def test_padding_beside_a_fact_wipes_nothing(person: Memory, invoke: Invoke) -> None:
    person.working_memory.update(FULL, resource_id="ann")
    padded: dict[str, Any] = {**NULLS, "name": "Bob", "home": {"city": None, "street": ""}, "pets": []}
    reply = invoke(update_tool(person), {"memory": padded, "clear": []})
    assert known(person) == {**FULL, "name": "Bob"}
    assert reply.splitlines()[1:] == ['name: "Bob" (was "Ann")']


def test_padding_stores_no_empty_values(person: Memory, invoke: Invoke) -> None:
    padded: dict[str, Any] = {**NULLS, "name": "Bob", "home": {"city": None, "street": ""}, "pets": [], "places": []}
    invoke(update_tool(person), {"memory": padded, "clear": None})
    assert known(person) == {"name": "Bob"}


@pytest.mark.parametrize("options", [{"mode": "replace"}, {"mode": "append"}])
def test_padding_wipes_nothing_in_other_modes(make_memory: Make, invoke: Invoke, options: dict[str, Any]) -> None:
    memory = with_memory(make_memory, schema=Person, **options)
    memory.working_memory.update(FULL, resource_id="ann")
    invoke(update_tool(memory), {"memory": {**NULLS, "pets": []}, "clear": []})
    assert known(memory) == FULL


@pytest.mark.parametrize(
    "arguments",
    [{}, {"memory": None, "edits": None}, {"memory": "", "edits": []}, {"memory": "  "}, {"memory": TEMPLATE}],
)
def test_padding_and_a_bare_template_wipe_no_text(markdown: Memory, invoke: Invoke, arguments: dict[str, Any]) -> None:
    before = markdown.working_memory.update(TEMPLATE.replace("Name**:", "Name**: Ann"), resource_id="ann")
    assert "not changed" in invoke(update_tool(markdown), arguments)
    assert markdown.working_memory.get(resource_id="ann") == before


# ---------------------------------------------------------------------- clear


def test_named_fields_are_deleted_nested_ones_too(person: Memory, invoke: Invoke) -> None:
    person.working_memory.update(FULL, resource_id="ann")
    reply = invoke(update_tool(person), {"clear": ["age", "home.street", "pets"]})
    assert known(person) == {"name": "Ann", "home": {"city": "Ulm"}, "places": [{"city": "Rome"}]}
    assert 'home.street: nothing (was "x")' in reply


def test_a_change_and_a_deletion_are_one_revision(person: Memory, invoke: Invoke) -> None:
    person.working_memory.update(FULL, resource_id="ann")
    invoke(update_tool(person), {"memory": {**NULLS, "name": "Bob"}, "clear": ["age"]})
    assert known(person) == {**{key: value for key, value in FULL.items() if key != "age"}, "name": "Bob"}
    assert person.working_memory.get(resource_id="ann").revision == 2


def test_deleting_what_is_not_there_names_the_fields_and_changes_nothing(person: Memory, invoke: Invoke) -> None:
    before = person.working_memory.update(FULL, resource_id="ann")
    reply = invoke(update_tool(person), {"memory": {"name": "Bob"}, "clear": ["nmae"]})
    assert "no field 'nmae'" in reply
    assert "home.city" in reply
    assert person.working_memory.get(resource_id="ann") == before


def test_clearing_everything_by_name_leaves_nothing(person: Memory, invoke: Invoke) -> None:
    person.working_memory.update({"name": "Ann"}, resource_id="ann")
    invoke(update_tool(person), {"memory": NULLS, "clear": ["name"]})
    assert person.working_memory.get(resource_id="ann").is_empty


def test_a_field_with_an_alias_is_deleted_by_the_name_that_the_model_sees(make_memory: Make, invoke: Invoke) -> None:
    fields: dict[str, Any] = {"first_name": (str | None, Field(None, alias="firstName"))}
    memory = with_memory(make_memory, schema=create_model("Aliased", **fields))
    tool = update_tool(memory)
    assert "firstName" in json.dumps(convert_to_openai_tool(tool))
    invoke(tool, {"memory": {"firstName": "Ann"}})
    assert known(memory) == {"firstName": "Ann"}
    invoke(tool, {"clear": ["firstName"]})
    assert known(memory) == {}


# ---------------------------------------------------------------------- edits


def test_edits_change_single_places_and_say_so(markdown: Memory, invoke: Invoke) -> None:
    edits = [
        {"find": "- **Name**:", "replace": "- **Name**: Ann"},
        {"find": "- **City**:", "replace": "- **City**: Ulm"},
    ]
    reply = invoke(update_tool(markdown), {"edits": edits})
    assert markdown.working_memory.get(resource_id="ann").text == "# User\n- **Name**: Ann\n- **City**: Ulm\n"
    assert "+ - **Name**: Ann" in reply
    assert markdown.working_memory.get(resource_id="ann").revision == 1


@pytest.mark.parametrize(
    ("find", "words"),
    [
        ("- **Cty**: Ulm", ["does not stand", "- **City**: Ulm"]),
        ("- **", ["2 times", "- **Name**: Ann", "- **City**: Ulm"]),
        ("", ["empty", "quote"]),
    ],
    ids=["missing", "ambiguous", "empty"],
)
def test_an_edit_that_fits_nowhere_changes_nothing_at_all(
    markdown: Memory, invoke: Invoke, find: str, words: list[str]
) -> None:
    before = markdown.working_memory.update("# User\n- **Name**: Ann\n- **City**: Ulm\n", resource_id="ann")
    edits = [{"find": "Ann", "replace": "Bob"}, {"find": find, "replace": "x"}]
    reply = invoke(update_tool(markdown), {"edits": edits})
    assert all(word in reply.replace("Bob", "Ann") for word in words)
    assert "nothing was changed" in reply
    assert markdown.working_memory.get(resource_id="ann") == before


def test_the_reply_to_a_failed_edit_quotes_what_is_stored_now(markdown: Memory, invoke: Invoke) -> None:
    markdown.working_memory.update("# User\n- **Name**: Ann\n", resource_id="ann")
    edits = [{"find": "Ann", "replace": "Bob"}, {"find": "- **Name**: An", "replace": "x"}]
    assert "- **Name**: Ann" in invoke(update_tool(markdown), {"edits": edits})


@pytest.mark.parametrize("find", ["A &lt; B &amp; C", "A < B & C"])
def test_an_edit_may_quote_the_text_as_the_prompt_shows_it(markdown: Memory, invoke: Invoke, find: str) -> None:
    markdown.working_memory.update("# User\n- **Name**: A < B & C\n", resource_id="ann")
    invoke(update_tool(markdown), {"edits": [{"find": find, "replace": "D &gt; E"}]})
    assert markdown.working_memory.get(resource_id="ann").text == "# User\n- **Name**: D > E\n"


def test_an_edit_may_quote_the_text_as_the_get_tool_shows_it(markdown: Memory, invoke: Invoke) -> None:
    markdown.working_memory.update("# User\n- **Name**: writes &lt; for <\n", resource_id="ann")
    (get,) = markdown.tools(resource_id="ann", include=[GET])
    line = invoke(get, {}).splitlines()[1]
    invoke(update_tool(markdown), {"edits": [{"find": line, "replace": "- **Name**: Ann"}]})
    assert markdown.working_memory.get(resource_id="ann").text == "# User\n- **Name**: Ann\n"


def test_text_and_edits_together_are_refused(markdown: Memory, invoke: Invoke) -> None:
    reply = invoke(update_tool(markdown), {"memory": "x", "edits": [{"find": "User", "replace": "y"}]})
    assert "send one of them" in reply
    assert markdown.working_memory.get(resource_id="ann").revision == 0


def test_a_whole_text_takes_the_place_of_a_template(markdown: Memory, invoke: Invoke) -> None:
    text = "# User\n- **Name**: Ann\n- **City**:\n"
    invoke(update_tool(markdown), {"memory": text, "edits": []})
    assert markdown.working_memory.get(resource_id="ann").text == text


def test_free_text_can_be_edited_and_added_to(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, template="")
    tool = update_tool(memory)
    invoke(tool, {"memory": "likes tea"})
    invoke(tool, {"memory": "lives in Ulm"})
    invoke(tool, {"edits": [{"find": "tea", "replace": "coffee"}]})
    assert memory.working_memory.get(resource_id="ann").text == "likes coffee\n\nlives in Ulm"


# ---------------------------------------------------------------------- replies


def test_the_reply_says_what_was_there_before(person: Memory, invoke: Invoke) -> None:
    person.working_memory.update({"name": "Ann", "pets": ["cat"]}, resource_id="ann")
    reply = invoke(update_tool(person), {"memory": {"name": "Bob", "pets": ["dog"]}})
    assert reply.splitlines()[1:] == ['name: "Bob" (was "Ann")', 'pets: ["dog"] (was ["cat"])']


def test_an_update_that_changes_nothing_says_so(person: Memory, invoke: Invoke) -> None:
    person.working_memory.update({"name": "Ann"}, resource_id="ann")
    assert "nothing was changed" in invoke(update_tool(person), {"memory": {"name": "Ann"}})


def test_a_long_reply_is_cut_in_words(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, schema={"type": "object"})
    reply = invoke(update_tool(memory), {"memory": {f"k{at}": at for at in range(50)}})
    assert "and 30 more" in reply
    assert len(reply.splitlines()) < 25


@pytest.mark.parametrize("arguments", [{"memory": "x" * 50_000}, {"edits": [{"find": "- fact", "replace": "x"}]}])
def test_a_reply_is_short_however_long_the_memory_is(
    make_memory: Make, invoke: Invoke, arguments: dict[str, Any]
) -> None:
    memory = with_memory(make_memory, template="# Facts")
    text = "\n".join(f"- fact {at}: something that the user said" for at in range(1000))
    memory.working_memory.update(text, resource_id="ann")
    assert len(invoke(update_tool(memory), arguments)) < 10_000


def test_the_reply_to_a_long_rewrite_does_not_take_seconds(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, template="# Facts")
    texts = ["\n".join(f"- fact {at}: the user {did} {at * 7}" for at in range(250)) for did in ("said", "did")]
    memory.working_memory.update(texts[0], resource_id="ann")
    begun = time.perf_counter()
    invoke(update_tool(memory), {"memory": texts[1]})
    assert time.perf_counter() - begun < 0.5  # a diff by lines takes milliseconds


def test_get_shows_it_and_says_when_it_is_empty(person: Memory, invoke: Invoke) -> None:
    (tool,) = person.tools(resource_id="ann", include=[GET])
    assert "empty" in invoke(tool, {})
    person.working_memory.update({"name": "Ann"}, resource_id="ann")
    assert json.loads(invoke(tool, {})) == {"name": "Ann"}


# ---------------------------------------------------------------------- errors are words


def too_deep(depth: int) -> Any:
    document: dict[str, Any] = {}
    for _ in range(depth):
        document = {"a": document}
    return document


@pytest.mark.parametrize(
    ("schema", "arguments", "word"),
    [
        (Person, {"memory": {"age": -1}}, "age"),
        (Person, {"memory": {"age": "old"}}, "age"),
        (Person, {"memory": "Ann"}, "memory"),
        (Person, {"memory": [1]}, "memory"),
        (Person, {"clear": "name"}, "clear"),
        (Person, {"memory": {"name": "x" * 2000}}, "limit is 1000"),
        (Person, {"memory": {"name": "\ud800"}}, ""),
        ({"type": "object"}, {"memory": "Ann"}, ""),
        ({"type": "object"}, {"memory": {}, "clear": [3]}, ""),
        ({"type": "object"}, {"memory": too_deep(300)}, ""),
        ({"type": "object", "properties": {"age": {"type": "integer"}}}, {"memory": {"age": "old"}}, "age"),
        (None, {"memory": {"name": "Ann"}}, "memory"),
        (None, {"edits": [{"find": "x"}]}, "replace"),
        (None, {"edits": "x"}, "edits"),
        (None, {"edits": [{"find": "nowhere", "replace": "x"}]}, "nowhere"),
    ],
)
def test_what_is_refused_is_told_to_the_model_and_the_graph_goes_on(
    make_memory: Make, invoke: Invoke, schema: Any, arguments: dict[str, Any], word: str
) -> None:
    options = {"schema": schema} if schema else {"template": TEMPLATE}
    memory = with_memory(make_memory, max_bytes=1000, **options)
    model = Scripted(responses=[calls(arguments), AIMessage("sorry")])
    found = invoke(create_agent(model, memory.tools(resource_id="ann")), {"messages": [HumanMessage("hi")]})
    (result,) = results(found["messages"])
    assert result.status == "error"
    assert word in str(result.content)
    assert found["messages"][-1].content == "sorry"
    assert memory.working_memory.get(resource_id="ann").revision == 0


def test_somebody_elses_thread_is_refused_in_words(make_memory: Make, invoke: Invoke) -> None:
    memory = with_memory(make_memory, template="", scope="thread")
    memory.working_memory.update("secret", thread_id="t", resource_id="bob")
    for tool, arguments in zip(
        memory.tools(thread_id="t", resource_id="ann", include=[UPDATE, GET, CLEAR]),
        ({"memory": "mine"}, {}, {}),
        strict=True,
    ):
        reply = invoke(tool, arguments)
        assert "does not belong" in reply
        assert "secret" not in reply
    assert memory.working_memory.get(thread_id="t").text == "secret"


def test_a_server_that_is_gone_is_told_to_the_model(make_memory: Make, invoke: Invoke) -> None:
    memory = make_memory("redis://127.0.0.1:1", working_memory=WorkingMemoryOptions())
    reply = invoke(update_tool(memory), {"memory": "# User information\n- **First name**: Ann"})
    assert "cannot be reached" in reply


# ---------------------------------------------------------------------- what a model is shown


@pytest.mark.parametrize(
    ("mode", "wrong"), [("replace", "the others stay"), ("append", "Lists are replaced as a whole")]
)
def test_the_tool_says_what_its_mode_does(make_memory: Make, mode: str, wrong: str) -> None:
    assert wrong in update_tool(with_memory(make_memory, schema=Person)).description
    assert wrong not in update_tool(with_memory(make_memory, schema=Person, mode=mode)).description


class Deep(BaseModel):
    """With everything that a schema may hold."""

    model_config = ConfigDict(extra="forbid")
    home: Home
    homes: list[Home] = []
    other: Home | None = None


SCHEMAS: dict[str, dict[str, Any]] = {
    "pydantic": {"schema": Person},
    "deep": {"schema": Deep},
    "json schema": {
        "schema": {"type": "object", "properties": {"home": Home.model_json_schema()}, "required": ["home"]}
    },
    "json schema with references": {"schema": Person.model_json_schema()},
    "template": {"template": TEMPLATE},
    "text": {"template": ""},
}


def objects(schema: Any) -> list[dict[str, Any]]:
    """Find every object with properties in a JSON schema."""
    if isinstance(schema, list):
        return [found for part in schema for found in objects(part)]
    if not isinstance(schema, dict):
        return []
    here = [schema] if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" else []
    return here + [found for part in schema.values() for found in objects(part)]


@pytest.mark.parametrize("options", SCHEMAS.values(), ids=SCHEMAS)
def test_strict_tools_require_every_property_and_allow_no_others(make_memory: Make, options: dict[str, Any]) -> None:
    memory = with_memory(make_memory, **options)
    for tool in memory.tools(include=[UPDATE, GET, CLEAR]):
        shown = convert_to_openai_tool(tool, strict=True)["function"]
        assert shown["strict"] is True
        assert "$ref" not in json.dumps(shown)
        parts = objects(shown["parameters"]) or [shown["parameters"]]
        for part in parts:
            assert set(part.get("required", ())) == set(part["properties"])
            assert part["additionalProperties"] is False


@pytest.mark.parametrize("options", SCHEMAS.values(), ids=SCHEMAS)
def test_no_id_and_nothing_of_the_run_is_an_argument(make_memory: Make, options: dict[str, Any]) -> None:
    memory = with_memory(make_memory, **options)
    for tool in memory.tools(include=[UPDATE, GET, CLEAR]):
        for strict in (None, True):
            names = {
                name for part in objects(convert_to_openai_tool(tool, strict=strict)) for name in part["properties"]
            }
            assert not names & {"thread_id", "resource_id", "user_id", "config", "runtime"}


def test_nothing_is_required_of_a_patch(make_memory: Make) -> None:
    shown = convert_to_openai_tool(update_tool(with_memory(make_memory, schema=Deep)))["function"]["parameters"]
    patch = shown["properties"]["memory"]["anyOf"][0]
    assert not shown.get("required")
    assert not patch.get("required")
    assert {"type": "null"} in patch["properties"]["home"]["anyOf"]


NEEDY_HOME = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"home": NEEDY_HOME}, "required": ["home"]},
        {"type": "object", "properties": {"home": {"$ref": "#/$defs/home"}}, "$defs": {"home": NEEDY_HOME}},
        {"type": "object", "properties": {"home": {"anyOf": [NEEDY_HOME, {"type": "null"}]}}},
    ],
    ids=["nested", "reference", "optional"],
)
def test_nothing_is_required_of_a_patch_along_a_json_schema(make_memory: Make, schema: Any) -> None:
    shown = convert_to_openai_tool(update_tool(with_memory(make_memory, schema=schema)))["function"]["parameters"]
    (home,) = [part for part in objects(shown) if "city" in part["properties"]]
    assert "required" not in home
    assert {"type": "null"} in home["properties"]["city"]["anyOf"]


def test_the_users_descriptions_are_shown(person: Memory) -> None:
    assert "What to call the person" in json.dumps(convert_to_openai_tool(update_tool(person)))


ODD = ["config", "runtime", "self", "memory", "clear", "schema", "copy", "json", "dict", "callbacks", "run_manager"]
ODD += ["state", "store", "tool_call_id", "thread_id", "resource_id", "args", "kwargs", "name", "description"]


@pytest.mark.filterwarnings("ignore:Field name")  # Pydantic's, about what the user does
@pytest.mark.parametrize("name", [*ODD, "model_settings"])
def test_a_field_of_the_user_may_have_any_name(make_memory: Make, invoke: Invoke, name: str) -> None:
    fields: dict[str, Any] = {name: (str | None, None), "other": (int | None, None)}
    schema = create_model("Odd", __config__=ConfigDict(protected_namespaces=()), **fields)
    memory = with_memory(make_memory, schema=schema)
    model = Scripted(responses=[calls({"memory": {name: "x", "other": None}, "clear": None}), AIMessage("noted")])
    found = invoke(create_agent(model, memory.tools(resource_id="ann")), {"messages": [HumanMessage("hi")]})
    assert results(found["messages"])[0].status == "success"
    assert known(memory) == {name: "x"}
    invoke(update_tool(memory), {"memory": None, "clear": [name]})
    assert known(memory) == {}
