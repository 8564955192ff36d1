"""The two nodes of a StateGraph: what reaches the model, what is stored, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import interrupt

from langchain_workingmem import HistoryOptions, IdError, Memory, MemoryContext, RecallOptions, WorkingMemoryOptions
from tests.faces.nodes_samples import Recording, chat, say, spoken, stored, texts, who
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import CONFIG, remembered
from tests.helpers.trips import Trips
from tests.helpers.types import Invoke, Make

pytestmark = pytest.mark.in_turn("face")


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
    assert stored(plain) == ["one", "re: one", "two", "re: two", "three", "re: three"]


def test_what_a_narrow_window_has_taken_out_of_a_state_is_shown_in_a_wider_one(
    make_memory: Make, model: Recording, invoke: Invoke
) -> None:
    saver = InMemorySaver()
    for last, text in ((2, "one"), (2, "two"), (2, "three"), (9, "four")):
        memory = make_memory(history=HistoryOptions(last_messages=last, step=1))
        invoke(chat(memory, model, checkpointer=saver), say(text), who())
    assert spoken(model.seen[-1])[::2] == ["one", "two", "three", "four"]


def test_a_question_that_the_state_has_lost_moves_when_it_is_sent_again(
    make_memory: Make, model: Recording, invoke: Invoke
) -> None:
    """With its id and other words; the older words go, with their answer."""
    memory = make_memory(history=HistoryOptions(last_messages=2, step=1))
    graph = chat(memory, model, checkpointer=InMemorySaver())
    for text, id in (("one", "1"), ("two", "2"), ("three", "3"), ("four", "4"), ("TWO", "2")):
        invoke(graph, {"messages": [HumanMessage(text, id=id)]}, who())
    assert stored(memory)[::2] == ["one", "three", "four", "TWO"]


def test_a_summary_in_the_state_stands_for_what_it_replaces(plain: Memory, model: Recording, invoke: Invoke) -> None:
    """Right in front of the question it would be new input, whose marks count for nothing."""
    graph = chat(plain, model, checkpointer=InMemorySaver())
    invoke(graph, say("one"), who())
    answer = graph.get_state(who()).values["messages"][-1]
    summary = HumanMessage("So far: one.", additional_kwargs={"lc_source": "summarization"})
    graph.update_state(who(), {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), summary, answer]})
    invoke(graph, say("two"), who())
    assert spoken(model.seen[-1]) == ["So far: one.", "re: one", "two"]
    assert stored(plain) == ["one", "re: one", "two", "re: two"]


def test_what_is_sent_again_into_a_channel_without_ids_is_shown_once(plain: Memory, invoke: Invoke) -> None:
    stored = plain.save_turn([HumanMessage("hello"), AIMessage("yes")], thread_id="t", user_id="ann")
    config = {"configurable": {**who()["configurable"], "__pregel_checkpointer": object()}}
    for order in (1, -1):
        both = [stored, [HumanMessage("hello"), AIMessage("yes")]][::order]
        state = {"messages": [*both[0], *both[1], HumanMessage("new")]}
        shown = invoke(plain.load_node(into="context"), state, config)["context"].messages
        assert texts(shown) == ["hello", "yes", "new"]


def test_a_channel_may_hold_messages_as_dicts(plain: Memory, invoke: Invoke) -> None:
    state: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
    shown = invoke(plain.load_node(into="context"), state, who())["context"].messages
    invoke(plain.save_node(), state, who())
    assert (texts(shown), stored(plain)) == (["hello"], ["hello"])


# ---------------------------------------------------------------------- what memory adds


def test_placement_system_makes_system_messages_in_front_of_the_conversation(
    make_memory: Make, embeddings: WordEmbeddings, model: Recording, invoke: Invoke, saver: InMemorySaver | None
) -> None:
    memory = make_memory(
        embeddings=embeddings,
        recall=RecallOptions(top_k=1, message_range=0, placement="system"),
        working_memory=WorkingMemoryOptions(placement="system"),
    )
    memory.save_turn([HumanMessage("my dog is Nougat")], thread_id="old", user_id="ann")
    graph = chat(memory, model, checkpointer=saver)
    invoke(graph, say("hello"), who())
    invoke(graph, say("who is my dog"), who())
    assert [message.type for message in model.seen[1]] == ["system", "system", "human", "ai", "human"]
    assert "Nougat" in str(model.seen[1][0].text)
    assert str(model.seen[1][1].text).startswith("<working_memory>")
    assert texts(model.seen[1][2:]) == ["hello", "re: hello", "who is my dog"]
    assert stored(memory) == ["hello", "re: hello", "who is my dog", "re: who is my dog"]


def test_a_message_in_the_state_is_not_recalled_beside_itself(
    remembering: Memory, model: Recording, invoke: Invoke
) -> None:
    graph = chat(remembering, model, checkpointer=InMemorySaver())
    for text in ("my dog is Nougat", "one", "two", "who is my dog"):
        invoke(graph, say(text), who())
    # the state holds all of it, and the limit counts there, too
    assert [spoken(seen) for seen in model.seen[2:]] == [["one", "re: one", "two"], ["two", "re: two", "who is my dog"]]
    shown = str(model.seen[-1])  # in which the blocks of earlier turns are no more
    assert [shown.count(one) for one in ("<working_memory>", "<recalled_messages>", "my dog is Nougat")] == [1, 1, 1]


@dataclass
class Plain:
    messages: Annotated[list[AnyMessage], add_messages] = field(default_factory=list)
    memory: MemoryContext | None = None


class Typed(MessagesState, total=False):
    memory: MemoryContext


def beside(schema: Any, memory: Memory, model: Recording, checkpointer: InMemorySaver | None = None) -> Any:
    """A graph whose answer node puts the context together itself."""

    def answer(state: Any) -> dict[str, Any]:
        context = state["memory"] if isinstance(state, dict) else state.memory
        prompt = SystemMessage("\n".join(["You are kind.", *context.system]))
        return {"messages": [model.invoke([prompt, *context.messages])]}

    graph = StateGraph(schema)
    graph.add_node("load", memory.load_node(into="memory"))
    graph.add_node("answer", answer)
    graph.add_node("save", memory.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_edge("answer", "save")
    return graph.compile(checkpointer=checkpointer)


@pytest.mark.parametrize("schema", [Plain, Typed])
def test_another_channel_gets_the_context_and_messages_stay(
    remembering: Memory, model: Recording, invoke: Invoke, schema: Any, saver: InMemorySaver | None
) -> None:
    graph = beside(schema, remembering, model, saver)
    invoke(graph, say("one"), who())
    state = invoke(graph, say("two"), who())
    assert spoken(model.seen[-1]) == ["one", "re: one", "two"]
    assert "<working_memory>" in remembered(model.seen[-1])
    assert isinstance(state["memory"], MemoryContext)
    alone = ["two", "re: two"]
    assert texts(state["messages"]) == (["one", "re: one", *alone] if saver else alone)
    assert stored(remembering) == ["one", "re: one", "two", "re: two"]


def only(node: Any) -> Any:
    return StateGraph(MessagesState).add_node("only", node).set_entry_point("only").compile()


def test_loading_and_saving_cost_what_they_say(
    remembering: Memory, trips: Trips, invoke: Invoke, plain: Memory
) -> None:
    remembering.save_turn([HumanMessage("my dog is Nougat")], thread_id="old", user_id="ann")
    for node, count in ((remembering.load_node(), 2), (remembering.save_node(), 1), (plain.load_node(), 1)):
        assert trips.of(lambda node=node: invoke(only(node), say("who is my dog"), who("new"))) == count  # type: ignore[misc]


# ---------------------------------------------------------------- run again


@pytest.mark.parametrize("process", ["the same process", "a new process"])
@pytest.mark.parametrize("node", ["load", "answer"])
def test_an_answer_that_a_run_from_an_earlier_checkpoint_gives_takes_the_place_of_the_one_before(
    make_memory: Make, model: Recording, invoke: Invoke, node: str, process: str
) -> None:
    saver, memory = InMemorySaver(), make_memory()
    graph = chat(memory, model, checkpointer=saver)
    for text in ("one", "two"):
        invoke(graph, say(text), who())
    model.script.append(AIMessage("another answer"))
    before = next(one for one in graph.get_state_history(who()) if one.next == (node,))
    config = {"configurable": {**before.config["configurable"], **who()["configurable"]}}
    again = graph if process == "the same process" else chat(make_memory(), model, checkpointer=saver)
    invoke(again, None, config)
    assert stored(memory) == ["one", "re: one", "two", "another answer"]


def test_two_nodes_that_save_parts_of_a_turn_supersede_nothing(plain: Memory, invoke: Invoke) -> None:
    nodes: Any = [
        ("load", plain.load_node()),
        ("first", lambda _: {"messages": [AIMessage("first", id="a1")]}),
        ("save", plain.save_node()),
        ("second", lambda _: {"messages": [AIMessage("second", id="a2")]}),
        ("save_more", plain.save_node()),
    ]
    graph = StateGraph(MessagesState).add_sequence(nodes)
    graph.add_edge(START, "load")
    invoke(graph.compile(checkpointer=InMemorySaver()), say("one"), who())
    assert stored(plain) == ["one", "first", "second"]


def test_a_turn_that_was_left_at_an_interrupt_is_saved_with_the_next(remembering: Memory, invoke: Invoke) -> None:
    """The tools interrupt, and instead of answering the user says something else."""
    call: Any = {"name": "book", "args": {}, "id": "1"}
    answers = iter([AIMessage("Let me book that.", tool_calls=[call]), AIMessage("fine")])
    graph = StateGraph(MessagesState)
    graph.add_node("load", remembering.load_node())
    graph.add_node("answer", lambda _: {"messages": [next(answers)]})
    graph.add_node("tools", lambda _: interrupt("really?"))
    graph.add_node("save", remembering.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "answer")
    graph.add_conditional_edges("answer", lambda state: "tools" if state["messages"][-1].tool_calls else "save")
    app = graph.compile(checkpointer=InMemorySaver())
    invoke(app, say("Book a hut, my number is 555"), who())
    invoke(app, say("Never mind, hello"), who())
    said = ["Book a hut, my number is 555", "Let me book that.", "Never mind, hello", "fine"]
    assert stored(remembering) == said


@dataclass
class Context:
    thread_id: str | None = None
    user_id: str | None = None


def test_ids_come_from_the_context_and_a_run_without_them_says_how_to_pass_them(
    plain: Memory, model: Recording, invoke: Invoke
) -> None:
    graph = chat(plain, model, context_schema=Context)
    invoke(graph, say("one"), {"configurable": {"user_id": "other"}}, context=Context("t", "ann"))
    assert [(one.id, one.user_id, one.message_count) for one in plain.threads.list()] == [("t", "ann", 2)]
    for node in (plain.load_node(), plain.save_node()):
        with pytest.raises(IdError, match=r"thread_id is missing.*config\['configurable'\]"):
            invoke(only(node), say("one"))


def test_a_read_only_node_writes_nothing_and_does_not_tell_the_model_to_update(
    remembering: Memory, model: Recording, raw: Any, prefix: str, invoke: Invoke
) -> None:
    remembering.setup()
    before = set(raw.keys(f"{prefix}*"))
    invoke(only(remembering.load_node(read_only=True)), say("one"), who())
    assert set(raw.keys(f"{prefix}*")) == before
    invoke(chat(remembering, model, read_only=True), say("one"), who())
    invoke(chat(remembering, model), say("two"), who())
    assert ["update_working_memory" in remembered(seen) for seen in model.seen] == [False, True]


def test_the_first_turn_of_a_state_can_be_edited_though_no_node_has_loaded_it(plain: Memory, invoke: Invoke) -> None:
    def answer(state: Any) -> Any:
        return {"messages": [AIMessage(f"to {state['messages'][-1].text}", id=f"a{len(state['messages'][-1].text)}")]}

    graph: Any = StateGraph(MessagesState)
    app = graph.add_sequence([("answer", answer), ("save", plain.save_node())]).set_entry_point("answer")
    app = app.compile(checkpointer=InMemorySaver())
    invoke(app, {"messages": [HumanMessage("hello", id="q1")]}, CONFIG)
    edited = [RemoveMessage(id="a5"), HumanMessage("hello there", id="q1")]
    invoke(app, {"messages": edited}, CONFIG)
    assert [message.text for message in plain.history.messages("t")] == ["hello there", "to hello there"]
    for sent in ([HumanMessage("hello", id="q1")], [RemoveMessage(id="a5"), HumanMessage("bye", id="q2")]):
        invoke(app, {"messages": sent}, who("other"))
    assert [message.text for message in plain.history.messages("other")] == ["hello", "bye", "to bye"]
