"""One turn: what a model is shown, in which order, at which cost, and what is saved afterwards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.models import MemoryContext
from tests.helpers.conversations import accept, ai, any_message, calls_of, result
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import examples
from tests.helpers.models import own
from tests.helpers.trips import Trips
from tests.helpers.types import Make

TURN: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}


def texts(messages: list[BaseMessage]) -> list[str]:
    """What messages say, without what memory has put in front of a question."""
    return [str(message.text) for message in own(messages)]


def chat(memory: Memory, *words: str, thread: str = "t", user: str = "ann") -> None:
    kinds: tuple[type[BaseMessage], ...] = (HumanMessage, AIMessage)
    messages = [kinds[at % 2](text, id=f"{thread}-{at}") for at, text in enumerate(words)]
    memory.history.append(messages, thread_id=thread, user_id=user)


OLD = ["my cat is named Molly", "nice", "it rains today", "it does", "what is for lunch", "soup"]


@pytest.fixture
def brief(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    """Shows two messages of the history, and recalls one without its neighbours."""
    recall, history = RecallOptions(top_k=1, message_range=0), HistoryOptions(last_messages=2, step=1)
    return make_memory(embeddings=embeddings, recall=recall, history=history)


def test_without_words_of_the_user_the_blocks_are_for_the_prompt(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions())
    context = memory.context([AIMessage("Welcome back!")], **TURN)
    assert [block[:16] for block in context.system] == ["<working_memory>"]
    assert texts(context.messages) == ["Welcome back!"]


def test_top_k_is_filled_although_the_history_holds_the_nearest(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(
        embeddings=embeddings, recall=RecallOptions(top_k=3, message_range=0), history=HistoryOptions(step=1)
    )
    chat(memory, *[f"cherry {at}" for at in range(20)], *["cherry"] * 10)
    context = memory.context("cherry", **TURN)
    assert len(context.recalled) == 3
    assert len(context.messages) == 10 + 1


@pytest.mark.parametrize(("exclude", "calls"), [(True, []), (["search"], ["b"])])
def test_excluded_tools_are_not_shown_and_stay_stored(make_memory: Make, exclude: Any, calls: list[str]) -> None:
    memory = make_memory(history=HistoryOptions(exclude_tools=exclude))
    call = ai("let me see", "a", "b", id="call", names=["search", "bake"])
    stored = [HumanMessage("go", id="h"), call, result("a", "ra"), result("b", "rb"), AIMessage("done", id="end")]
    memory.history.append(stored, **TURN)
    context = memory.context([HumanMessage("new", id="n")], **TURN)
    accept(context.messages)
    assert [call for message in context.messages for call in calls_of(message)] == calls
    memory.save_turn(context.messages, **TURN)
    assert memory.history.messages("t", last=None)[:5] == stored


def test_invalid_calls_are_left_out_with_all_others(make_memory: Make) -> None:
    memory = make_memory(history=HistoryOptions(exclude_tools=True))
    invalid: Any = {"name": "a", "args": "{bad", "id": "c", "error": "e", "type": "invalid_tool_call"}
    call = AIMessage("", id="2", invalid_tool_calls=[invalid])
    memory.history.append([HumanMessage("go", id="1"), call, result("c", "r"), AIMessage("done", id="4")], **TURN)
    assert texts(memory.context("next", **TURN).messages) == ["go", "done", "next"]


def test_a_call_whose_result_comes_in_a_later_turn_stays_with_its_question(make_memory: Make) -> None:
    stored = [HumanMessage("Book a table", id="1"), ai("", "c", id="2"), HumanMessage("2+2?", id="3")]
    listed = [*stored, AIMessage("4", id="4"), HumanMessage("Booked?", id="5"), result("c", id="6")]
    shown = make_memory().context(listed, **TURN).messages
    assert [message.text for message in shown] == ["Book a table", "", "done", "2+2?", "4", "Booked?"]


def test_the_words_of_an_interrupted_call_push_out_no_talk(make_memory: Make) -> None:
    memory = make_memory(history=HistoryOptions(max_tokens=30))
    talk = [HumanMessage("My name is Ann", id="1"), AIMessage("Hello Ann", id="2"), HumanMessage("Weather?", id="3")]
    call = ai("Let me look that up for you in the web", "c", id="4")
    shown = memory.context([*talk, call, HumanMessage("My name?", id="5")], **TURN).messages
    assert texts(shown) == ["My name is Ann", "Hello Ann", "Weather?", "My name?"]


def test_a_new_message_is_not_recalled_by_itself(brief: Memory) -> None:
    chat(brief, *OLD)
    first = brief.history.messages("t")[0]
    context = brief.context([first], **TURN)
    assert "t-0" not in {hit.message.id for hit in context.recalled}
    assert [message.id for message in context.messages] == ["t-0"]


def test_what_stands_behind_a_stored_question_is_no_hit(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory, asked = make_memory(embeddings=embeddings), HumanMessage("it rains today", id="q")
    memory.save_turn([asked], **TURN)
    memory.history.append([AIMessage("it rains", id="note")], **TURN)
    assert memory.context([asked], **TURN).recalled.hits == []


def test_what_the_history_shows_is_not_recalled_beside_a_hit(make_memory: Make, embeddings: WordEmbeddings) -> None:
    memory = make_memory(embeddings=embeddings, history=HistoryOptions(last_messages=2, step=1))
    chat(memory, *OLD)
    context = memory.context("it does", **TURN, top_k=1)
    assert [one.id for one in context.recalled.messages] == ["t-2", "t-3"]
    assert [one.id for one in context.messages[:-1]] == ["t-4", "t-5"]


def test_recall_looks_for_the_last_message_of_the_user(brief: Memory, embeddings: WordEmbeddings) -> None:
    new = [HumanMessage("first"), ai("", "a"), result("a"), HumanMessage("second"), AIMessage("third")]
    brief.context(new, **TURN)
    assert embeddings.calls == [["second"]]


def test_a_context_is_a_round_trip_two_with_recall_and_a_save_is_one(
    memory: Memory, plain: Memory, trips: Trips
) -> None:
    chat(memory, *OLD)
    chat(memory, *OLD, thread="other")
    turn = [("user", "my cat"), ("ai", "a nice cat")]
    for one, count in ((memory, 2), (plain, 1)):
        assert trips.of(lambda one=one: one.context("my cat", **TURN)) == count  # type: ignore[misc]
        assert trips.of(lambda one=one: one.save_turn(turn, **TURN)) == 1  # type: ignore[misc]


@given(
    st.lists(st.lists(any_message, max_size=5) | st.sets(st.integers(0, 9)), max_size=6),
    st.lists(any_message, max_size=3),
    st.sampled_from([0, 1, 3, None]),
    st.integers(0, 2),
)
@examples(15, server=True)
def test_the_context_of_any_history_is_acceptable(
    make_memory: Make, steps: list[Any], new: list[BaseMessage], last: int | None, around: int
) -> None:
    memory = make_memory(
        embeddings=WordEmbeddings(),
        recall=RecallOptions(message_range=around, top_k=2),
        history=HistoryOptions(last_messages=last),
    )
    thread = uuid4().hex
    for step in steps:
        if isinstance(step, list):
            saved = [message.model_copy() for message in step]  # saving sets missing ids
            memory.save_turn(saved, thread_id=thread, user_id="ann")
        else:
            stored = memory.history.messages(thread)
            doomed = [str(stored[at].id) for at in step if at < len(stored)]
            memory.history.delete(doomed, thread_id=thread)
    context: MemoryContext = memory.context(
        [*new, HumanMessage("hello words", id="now")], thread_id=thread, user_id="ann"
    )
    accept(context.messages)
    assert context.messages[-1].id == "now"
    assert texts(context.messages)[-1] == "hello words"
    memory.threads.delete(thread)


def test_a_misspelled_argument_is_a_type_error_whether_recall_is_on_or_off(memory: Memory, plain: Memory) -> None:
    for one in (memory, plain):
        with pytest.raises(TypeError, match=r"unexpected keyword arguments \['last_message'\].*use some of"):
            one.context("Hello", **TURN, last_message=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("search", ["semantic", "hybrid"])
def test_a_context_beside_deletions_never_fails(
    make_memory: Make, embeddings: WordEmbeddings, server: EmbeddedRedis, prefix: str, search: Any
) -> None:
    memory = make_memory(embeddings=embeddings, recall=RecallOptions(search=search, top_k=20))
    words = [f"my cat {at}" for at in range(60)]
    for thread in ("t", "other"):
        chat(memory, *words, thread=thread)

    def delete() -> None:
        with Memory(server.url, embeddings=WordEmbeddings(), recall=RecallOptions(), key_prefix=prefix) as rival:
            for thread in ("t", "other") * 3:
                for at in range(0, 60, 2):
                    rival.history.delete([f"{thread}-{at}"], thread_id=thread)
                rival.threads.delete(thread)
                chat(rival, *words, thread=thread)

    with ThreadPoolExecutor(1) as pool:
        deleting = pool.submit(delete)
        while not deleting.done():
            accept(memory.context("my cat", **TURN).messages)
        deleting.result()
