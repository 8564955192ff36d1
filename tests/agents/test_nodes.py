"""The two nodes of a StateGraph: what reaches the model, what is stored, and who owns it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy
from pydantic import BaseModel, ConfigDict, Field

from langchain_workingmem import (
    EmbeddingError,
    HistoryOptions,
    IdError,
    Memory,
    MemoryContext,
    RecallOptions,
    ThreadOwnershipError,
    WorkingMemoryOptions,
)
from tests.conftest import Trips, WordEmbeddings
from tests.unit.test_windows import accept

Make = Callable[..., Memory]
Invoke = Callable[..., Any]
Config = dict[str, Any]


class Recording(BaseChatModel):
    """Answers what it is told to, else "re: <the question>"; keeps what it was shown, and is as strict as a provider."""

    seen: list[list[BaseMessage]] = Field(default_factory=list)
    script: list[AIMessage | Exception] = Field(default_factory=list)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @property
    def _llm_type(self) -> str:
        return "recording"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=tools, **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        accept(messages)
        self.seen.append(list(messages))
        said = self.script.pop(0) if self.script else AIMessage(f"re: {messages[-1].text}")
        if isinstance(said, Exception):
            raise said
        return ChatResult(generations=[ChatGeneration(message=said)])


def who(thread_id: str = "t", resource_id: str = "ann") -> Config:
    return {"configurable": {"thread_id": thread_id, "resource_id": resource_id}}


def chat(memory: Memory, model: Recording, **options: Any) -> Any:
    """Load, answer, save; the answer is a node of the user's."""
    compiled = {name: options.pop(name) for name in ("checkpointer", "retry_policy") if name in options}
    schema = options.pop("context_schema", None)
    graph = StateGraph(MessagesState, context_schema=schema)
    graph.add_node("load", memory.load_node(**options))
    graph.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("save", memory.save_node(), retry_policy=compiled.pop("retry_policy", None))
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    graph.add_edge("save", END)
    return graph.compile(**compiled)


def say(*texts: str) -> dict[str, list[BaseMessage]]:
    return {"messages": [HumanMessage(text) for text in texts]}


def texts(messages: Sequence[BaseMessage]) -> list[str]:
    return [str(message.text) for message in messages]


def spoken(messages: Sequence[BaseMessage]) -> list[str]:
    """What people and models said: no system messages."""
    return texts([message for message in messages if not isinstance(message, SystemMessage)])


def stored(memory: Memory, thread_id: str = "t") -> list[str]:
    return texts(memory.history.messages(thread_id))


@pytest.fixture
def model() -> Recording:
    return Recording()


@pytest.fixture(params=["forgetful", "checkpointed"])
def saver(request: pytest.FixtureRequest) -> InMemorySaver | None:
    """Every conversation goes the same with and without a checkpointer."""
    return InMemorySaver() if request.param == "checkpointed" else None


@pytest.fixture
def remembering(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """A memory of two messages, with recall and working memory."""
    return make_memory(
        embeddings=embeddings,
        history=HistoryOptions(last_messages=2),
        recall=RecallOptions(top_k=1, message_range=0),
        working_memory=WorkingMemoryOptions(),
    )


# ---------------------------------------------------------------------- turns


def test_the_model_sees_the_conversation_of_earlier_runs(
    plain: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(plain, model, checkpointer=saver)
    for text in ("one", "two", "three"):
        invoke(graph, say(text), who())
    assert [spoken(seen) for seen in model.seen] == [
        ["one"],
        ["one", "re: one", "two"],
        ["one", "re: one", "two", "re: two", "three"],
    ]


def test_the_stored_thread_is_the_conversation(
    plain: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(plain, model, checkpointer=saver)
    for text in ("one", "two", "three"):
        invoke(graph, say(text), who())
    assert stored(plain) == ["one", "re: one", "two", "re: two", "three", "re: three"]


def test_a_new_process_goes_on_where_the_old_one_stopped(
    make_memory: Make, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    invoke(chat(make_memory(), model, checkpointer=saver), say("one"), who())
    invoke(chat(make_memory(), model, checkpointer=InMemorySaver() if saver else None), say("two"), who())
    assert spoken(model.seen[-1]) == ["one", "re: one", "two"]


def test_two_messages_of_the_user_are_one_turn(
    plain: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(plain, model, checkpointer=saver)
    invoke(graph, say("zero"), who())
    invoke(graph, say("one", "two"), who())
    assert stored(plain) == ["zero", "re: zero", "one", "two", "re: two"]


def test_what_another_writer_added_stands_in_the_order_of_the_thread(
    plain: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(plain, model, checkpointer=saver)
    invoke(graph, say("one"), who())
    plain.save_turn([HumanMessage("two"), AIMessage("re: two")], thread_id="t", resource_id="ann")
    invoke(graph, say("three"), who())
    assert spoken(model.seen[-1]) == ["one", "re: one", "two", "re: two", "three"]


def test_a_client_that_sends_the_whole_conversation_doubles_nothing(
    plain: Memory, model: Recording, invoke: Invoke
) -> None:
    graph = chat(plain, model)
    invoke(graph, say("one"), who())
    invoke(graph, {"messages": [("user", "one"), ("assistant", "re: one"), ("user", "two")]}, who())
    assert spoken(model.seen[-1]) == ["one", "re: one", "two"]
    assert stored(plain) == ["one", "re: one", "two", "re: two"]


def test_a_summary_in_the_state_stands_for_what_it_replaces(plain: Memory, model: Recording, invoke: Invoke) -> None:
    graph = chat(plain, model, checkpointer=InMemorySaver())
    invoke(graph, say("one"), who())
    summary = HumanMessage("So far: one.", additional_kwargs={"lc_source": "summarization"})
    graph.update_state(who(), {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), summary]})
    invoke(graph, say("two"), who())
    assert spoken(model.seen[-1]) == ["So far: one.", "two"]
    assert stored(plain) == ["one", "re: one", "two", "re: two"]


def test_what_is_loaded_beside_the_messages_is_not_streamed(remembering: Memory, model: Recording) -> None:
    graph = beside(Typed, remembering, model)
    graph.invoke(say("one"), who("t"))
    streamed = [message for message, _ in graph.stream(say("two"), who("t"), stream_mode="messages")]
    assert texts(streamed) == ["re: two"]


def test_threads_do_not_see_each_other(
    plain: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(plain, model, checkpointer=saver)
    invoke(graph, say("one"), who("t1"))
    invoke(graph, say("two"), who("t2"))
    assert spoken(model.seen[-1]) == ["two"]


# ---------------------------------------------------------------------- what memory adds


def test_what_is_recalled_elsewhere_is_a_system_message_in_front_of_the_conversation(
    remembering: Memory, model: Recording, invoke: Invoke
) -> None:
    remembering.save_turn([HumanMessage("my dog is Nougat")], thread_id="old", resource_id="ann")
    invoke(chat(remembering, model), say("who is my dog"), who())
    assert [message.type for message in model.seen[0]] == ["system", "system", "human"]
    assert "Nougat" in str(model.seen[0][0].text)
    assert str(model.seen[0][1].text).startswith("<working_memory>")


def test_blocks_of_earlier_turns_leave(
    remembering: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(remembering, model, checkpointer=saver)
    remembering.save_turn([HumanMessage("my dog is Nougat")], thread_id="old", resource_id="ann")
    for number in range(4):
        invoke(graph, say(f"who is my dog {number}"), who())
    blocks = [str(message.text) for message in model.seen[-1] if isinstance(message, SystemMessage)]
    assert sum(block.startswith("<working_memory>") for block in blocks) == 1
    assert sum("Nougat" in block for block in blocks) <= 1


def test_working_memory_is_that_of_now(
    remembering: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(remembering, model, checkpointer=saver)
    for name in ("Ann", "Anna"):
        remembering.working_memory.update(f"- name: {name}!", resource_id="ann")
        invoke(graph, say("hello"), who())
    shown = "\n".join(texts(model.seen[-1]))
    assert "Anna!" in shown
    assert "Ann!" not in shown


def test_your_own_system_message_stays_first(
    remembering: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(remembering, model, checkpointer=saver)
    prompt = SystemMessage("You are a gardener.", id="prompt")
    for text in ("one", "two", "three"):
        invoke(graph, {"messages": [prompt, HumanMessage(text)]}, who())
        assert model.seen[-1][0] == prompt
        assert sum(message.text == prompt.text for message in model.seen[-1]) == 1


def test_a_recalled_message_of_the_same_thread_stands_in_its_place(
    remembering: Memory, model: Recording, invoke: Invoke
) -> None:
    graph = chat(remembering, model)
    for text in ("my dog is Nougat", "one", "two", "who is my dog"):
        invoke(graph, say(text), who())
    assert spoken(model.seen[-1]) == ["my dog is Nougat", "two", "re: two", "who is my dog"]
    marks = [message.additional_kwargs.get("lc_source") for message in model.seen[-1][1:]]
    assert marks == ["langchain_workingmem", None, None, None]


def test_a_recalled_message_is_not_saved_again(
    remembering: Memory, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    graph = chat(remembering, model, checkpointer=saver)
    said = ["my dog is Nougat", "one", "two", "who is my dog", "is my dog Nougat", "three"]
    for text in said:
        invoke(graph, say(text), who())
    assert stored(remembering) == [line for text in said for line in (text, f"re: {text}")]
    assert all(
        "lc_source" not in message.additional_kwargs for message in remembering.history.messages("t", resource_id="ann")
    )


def test_a_message_in_the_state_is_not_recalled_beside_itself(
    remembering: Memory, model: Recording, invoke: Invoke
) -> None:
    graph = chat(remembering, model, checkpointer=InMemorySaver())
    for text in ("my dog is Nougat", "one", "two", "who is my dog"):
        invoke(graph, say(text), who())
    assert spoken(model.seen[-1]).count("my dog is Nougat") == 1


def test_the_window_of_the_history_is_that_of_the_options(make_memory: Make, model: Recording, invoke: Invoke) -> None:
    graph = chat(make_memory(history=HistoryOptions(last_messages=0)), model)
    for text in ("one", "two"):
        invoke(graph, say(text), who())
    assert spoken(model.seen[-1]) == ["two"]


# ---------------------------------------------------------------------- another state


@dataclass
class Plain:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    memory: MemoryContext | None = None


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    messages: Annotated[list[AnyMessage], add_messages] = []


class ModelWithMemory(Model):
    memory: MemoryContext | None = None


class Typed(MessagesState, total=False):
    memory: MemoryContext


def beside(schema: Any, memory: Memory, model: Recording, checkpointer: InMemorySaver | None = None) -> Any:
    """A graph whose answer node puts the context together itself."""

    def answer(state: Any) -> dict[str, Any]:
        context = state["memory"] if isinstance(state, dict) else state.memory
        return {"messages": [model.invoke([SystemMessage("\n".join(context.system)), *context.messages])]}

    graph = StateGraph(schema)
    graph.add_node("load", memory.load_node(into="memory"))
    graph.add_node("answer", answer)
    graph.add_node("save", memory.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    return graph.compile(checkpointer=checkpointer)


@pytest.mark.parametrize("schema", [Plain, ModelWithMemory, Typed])
def test_another_channel_gets_the_context_and_messages_stay(
    remembering: Memory, model: Recording, invoke: Invoke, schema: Any, saver: InMemorySaver | None
) -> None:
    graph = beside(schema, remembering, model, saver)
    invoke(graph, say("one"), who())
    state = invoke(graph, say("two"), who())
    assert spoken(model.seen[-1]) == ["one", "re: one", "two"]
    assert "<working_memory>" in str(model.seen[-1][0].text)
    assert isinstance(state["memory"], MemoryContext)
    alone = ["two", "re: two"]
    assert texts(state["messages"]) == (["one", "re: one", *alone] if saver else alone)
    assert stored(remembering) == ["one", "re: one", "two", "re: two"]


@pytest.mark.parametrize("schema", [Plain, Model])
def test_a_state_with_attributes_can_be_rewritten_too(
    plain: Memory, model: Recording, invoke: Invoke, schema: Any
) -> None:
    graph = StateGraph(schema)
    graph.add_node("load", plain.load_node())
    graph.add_node("answer", lambda state: {"messages": [model.invoke(state.messages)]})
    graph.add_node("save", plain.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    compiled = graph.compile()
    for text in ("one", "two"):
        invoke(compiled, say(text), who())
    assert spoken(model.seen[-1]) == ["one", "re: one", "two"]


# ---------------------------------------------------------------------- ids


@dataclass
class Context:
    thread_id: str | None = None
    resource_id: str | None = None
    user_id: str | None = None


@pytest.mark.parametrize("name", ["resource_id", "user_id"])
def test_ids_come_from_the_context(plain: Memory, model: Recording, invoke: Invoke, name: str) -> None:
    graph = chat(plain, model, context_schema=Context)
    invoke(graph, say("one"), context=Context(thread_id="t", **{name: "ann"}))
    thread = plain.threads.get("t")
    assert thread is not None
    assert (thread.resource_id, thread.message_count) == ("ann", 2)


def test_the_context_counts_more_than_configurable(plain: Memory, model: Recording, invoke: Invoke) -> None:
    graph = chat(plain, model, context_schema=Context)
    invoke(graph, say("one"), who("forged", "bob"), context=Context("t", "ann"))
    assert plain.threads.get("forged") is None
    assert plain.threads.list(resource_id="ann").total == 1


def test_user_id_in_configurable_is_the_resource(plain: Memory, model: Recording, invoke: Invoke) -> None:
    invoke(chat(plain, model), say("one"), {"configurable": {"thread_id": "t", "user_id": "ann"}})
    assert plain.threads.list(resource_id="ann").total == 1


def test_with_a_thread_alone_its_owner_counts(plain: Memory, model: Recording, invoke: Invoke) -> None:
    plain.threads.create(resource_id="ann", thread_id="t")
    invoke(chat(plain, model), say("one"), {"configurable": {"thread_id": "t"}})
    assert plain.threads.list(resource_id="ann").total == 1
    assert stored(plain) == ["one", "re: one"]


def test_a_new_thread_alone_owns_itself(plain: Memory, model: Recording, invoke: Invoke) -> None:
    invoke(chat(plain, model), say("one"), {"configurable": {"thread_id": "t"}})
    assert plain.threads.list(resource_id="t").total == 1


@pytest.mark.parametrize("node", ["load", "save"])
def test_a_run_without_ids_says_how_to_pass_them(plain: Memory, invoke: Invoke, node: str) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("only", plain.load_node() if node == "load" else plain.save_node())
    graph.add_edge(START, "only")
    with pytest.raises(IdError, match=r"thread_id is missing.*config\['configurable'\]"):
        invoke(graph.compile(), say("one"))


@pytest.mark.parametrize("node", ["load", "save"])
def test_somebody_elses_thread_is_refused(plain: Memory, invoke: Invoke, node: str) -> None:
    plain.save_turn([HumanMessage("mine")], thread_id="t", resource_id="ann")
    graph = StateGraph(MessagesState)
    graph.add_node("only", plain.load_node() if node == "load" else plain.save_node())
    graph.add_edge(START, "only")
    with pytest.raises(ThreadOwnershipError):
        invoke(graph.compile(), say("one"), who("t", "bob"))
    assert stored(plain) == ["mine"]


# ---------------------------------------------------------------------- reading only


def test_a_read_only_node_does_not_tell_the_model_to_update(
    remembering: Memory, model: Recording, invoke: Invoke
) -> None:
    invoke(chat(remembering, model, read_only=True), say("one"), who())
    invoke(chat(remembering, model), say("two"), who())
    assert ["update_working_memory" in "\n".join(texts(seen)) for seen in model.seen] == [False, True]


def test_loading_writes_nothing(remembering: Memory, raw: Any, prefix: str, invoke: Invoke) -> None:
    remembering.setup()
    before = set(raw.keys(f"{prefix}*"))
    graph = StateGraph(MessagesState)
    graph.add_node("load", remembering.load_node(read_only=True))
    graph.add_edge(START, "load")
    state = invoke(graph.compile(), say("one"), who())
    assert spoken(state["messages"]) == ["one"]
    assert set(raw.keys(f"{prefix}*")) == before


# ---------------------------------------------------------------------- failures


class FlakyError(Exception):
    """What a node fails with."""


def failing_behind(times: int) -> RunnableLambda[Any, Any]:
    """Fail behind the save, as a lost connection does, that many times."""
    left = iter(range(times))

    def fail(update: Any) -> Any:
        for _ in left:
            raise FlakyError
        return update

    return RunnableLambda(fail)


def flaky(memory: Memory, model: Recording, times: int, **options: Any) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("load", memory.load_node())
    graph.add_node("answer", lambda state: {"messages": [model.invoke(state["messages"])]})
    policy = RetryPolicy(initial_interval=0, jitter=False, max_attempts=3, retry_on=FlakyError)
    graph.add_node("save", memory.save_node() | failing_behind(times), retry_policy=policy)
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    return graph.compile(**options)


def test_a_save_that_is_tried_again_saves_once(plain: Memory, model: Recording, invoke: Invoke) -> None:
    invoke(flaky(plain, model, 2), say("one"), who())
    assert stored(plain) == ["one", "re: one"]


def test_a_save_that_is_resumed_saves_once(plain: Memory, model: Recording, invoke: Invoke) -> None:
    graph = flaky(plain, model, 3, checkpointer=InMemorySaver())
    with pytest.raises(FlakyError):
        invoke(graph, say("one"), who())
    invoke(graph, None, who())
    invoke(graph, say("two"), who())
    assert stored(plain) == ["one", "re: one", "two", "re: two"]
    assert len(model.seen) == 2


def test_a_model_that_failed_is_resumed(plain: Memory, model: Recording, invoke: Invoke) -> None:
    graph = chat(plain, model, checkpointer=InMemorySaver())
    invoke(graph, say("one"), who())
    model.script = [FlakyError()]
    with pytest.raises(FlakyError):
        invoke(graph, say("two"), who())
    invoke(graph, None, who())
    assert spoken(model.seen[-1]) == ["one", "re: one", "two"]
    assert stored(plain) == ["one", "re: one", "two", "re: two"]


def test_after_a_failed_turn_the_next_one_says_all(plain: Memory, model: Recording, invoke: Invoke) -> None:
    graph = chat(plain, model, checkpointer=InMemorySaver())
    model.script = [FlakyError()]
    with pytest.raises(FlakyError):
        invoke(graph, say("one"), who())
    invoke(graph, say("two"), who())
    assert stored(plain) == ["one", "two", "re: two"]


@pytest.mark.parametrize("on_error", ["raise", "log"])
def test_a_turn_whose_embedding_fails_is_saved(
    make_memory: Make,
    embeddings: WordEmbeddings,
    invoke: Invoke,
    on_error: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(), on_error=on_error)
    graph = StateGraph(MessagesState)
    graph.add_node("save", memory.save_node())
    graph.add_edge(START, "save")
    embeddings.broken = OSError("down")
    if on_error == "raise":
        with pytest.raises(EmbeddingError):
            invoke(graph.compile(), say("one"), who())
    else:
        invoke(graph.compile(), say("one"), who())
        assert "without vectors" in caplog.text
    assert stored(memory) == ["one"]


# ---------------------------------------------------------------------- tools


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def calling(*cities: str) -> AIMessage:
    calls = [{"name": "weather", "args": {"city": city}, "id": f"call-{city}"} for city in cities]
    return AIMessage("", tool_calls=calls)


@pytest.fixture
def agent(plain: Memory, model: Recording, saver: InMemorySaver | None) -> Any:
    graph = StateGraph(MessagesState)
    graph.add_node("load", plain.load_node())
    bound = model.bind_tools([weather])
    graph.add_node("answer", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([weather]))
    graph.add_node("save", plain.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_conditional_edges("answer", tools_condition, {"tools": "tools", "__end__": "save"})
    graph.add_edge("tools", "answer")
    return graph.compile(checkpointer=saver)


def test_a_turn_with_tools_is_saved_whole_and_in_order(
    agent: Any, plain: Memory, model: Recording, invoke: Invoke
) -> None:
    model.script = [calling("Ulm", "Bonn"), calling("Kiel"), AIMessage("sunny")]
    invoke(agent, say("how is the weather"), who())
    found = plain.history.messages("t")
    assert [message.type for message in found] == ["human", "ai", "tool", "tool", "ai", "tool", "ai"]
    results = [message.tool_call_id for message in found if isinstance(message, ToolMessage)]
    assert results == ["call-Ulm", "call-Bonn", "call-Kiel"]


def test_a_turn_with_tools_is_shown_again(agent: Any, model: Recording, invoke: Invoke) -> None:
    model.script = [calling("Ulm"), AIMessage("sunny")]
    invoke(agent, say("how is the weather"), who())
    invoke(agent, say("thanks"), who())
    assert texts(model.seen[-1]) == ["how is the weather", "", "sunny in Ulm", "sunny", "thanks"]


# ---------------------------------------------------------------------- cost


def test_loading_and_saving_cost_what_they_say(
    remembering: Memory, trips: Trips, invoke: Invoke, plain: Memory
) -> None:
    def trips_of(node: Any) -> int:
        graph = StateGraph(MessagesState)
        graph.add_node("only", node)
        graph.add_edge(START, "only")
        compiled = graph.compile()
        return trips.of(lambda: invoke(compiled, say("who is my dog"), who("new")))

    remembering.save_turn([HumanMessage("my dog is Nougat")], thread_id="old", resource_id="ann")
    assert trips_of(remembering.load_node()) == 2
    assert trips_of(remembering.save_node()) == 1
    assert trips_of(plain.load_node()) == 1
