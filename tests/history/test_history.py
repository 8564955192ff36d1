from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage

from langchain_workingmem import Memory, MessageNotFoundError, OptionError, ThreadNotFoundError
from langchain_workingmem._text.unicode import spans
from tests.helpers.examples import examples
from tests.helpers.threads import append, rows_of, said, texts, thread_of, vectors


def test_many_messages_are_appended_as_if_one_by_one(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    """They are written in batches of 200; known ones, and ids that come twice, stand between them."""
    append(memory, "50", "300")
    calls = [{"name": "look", "args": {}, "id": "c"}]
    many: list[Any] = [HumanMessage(f"new {at}", id=str(at)) for at in range(450)]
    many[3::7] = [AIMessage("", tool_calls=calls, id=str(at)) for at in range(3, 450, 7)]
    answers = [AIMessage(f"answer {at}", id=f"a{at}") for at in range(250)]
    again = [HumanMessage("again 449", id="449"), HumanMessage("again 0", id="0")]
    memory.history.append([*many, *answers, *again], thread_id="t", user_id="u")

    found = {row.message.id: row for row in rows_of(memory)}
    assert list(found) == [*dict.fromkeys(["50", "300", *(one.id for one in (*many, *answers))])]
    changed = ["again 0", "new 50", "new 300", "new 448", "again 449"]
    assert [found[id].message.text for id in ("0", "50", "300", "448", "449")] == changed
    assert thread_of(memory).message_count == 700
    said = [row for row in found.values() if not getattr(row.message, "tool_calls", ())]
    assert len(said) == len(vectors(raw, prefix))
    totals = [row.total_tokens for row in said]
    assert totals == sorted(totals)
    assert totals[0] > 0


def test_append_skips_prompts_summaries_and_what_memory_injected(plain: Memory) -> None:
    marked: Any = {"additional_kwargs": {"lc_source": "hitl_interrupt_decision"}}
    kept = [*said("kept"), ToolMessage("x", tool_call_id="c", id="t", **marked), AIMessage("", id="empty")]
    skipped = [
        SystemMessage("you are helpful"),
        HumanMessage("a summary", additional_kwargs={"lc_source": "summarization"}),
        AIMessage("recalled", additional_kwargs={"lc_source": "langchain_workingmem"}),
        RemoveMessage(id="x"),
    ]
    assert plain.history.append([*skipped, *kept], thread_id="t", user_id="u") == kept
    assert plain.history.messages("t") == kept


def test_append_accepts_whatever_langchain_accepts_as_messages(plain: Memory) -> None:
    given: list[Any] = [{"role": "user", "content": "a"}, ("assistant", "b"), "c", HumanMessage("d")]
    plain.history.append((item for item in given), thread_id="t", user_id="u")
    plain.history.append(HumanMessage("e"), thread_id="t", user_id="u")
    stored = plain.history.messages("t")
    assert [(message.type, message.content) for message in stored] == [
        *(("human", "a"), ("ai", "b"), ("human", "c"), ("human", "d"), ("human", "e"))
    ]


def test_append_refuses_a_lone_text(plain: Memory) -> None:
    with pytest.raises(OptionError, match=r"pass \[HumanMessage\(text\)\]"):
        plain.history.append("hello", thread_id="t", user_id="u")


def test_update_replaces_in_place_with_vectors_and_moves_the_threads_time(
    memory: Memory, raw: redis.Redis, prefix: str
) -> None:
    append(memory, "a", "b", "c")
    before, thread = rows_of(memory), thread_of(memory)
    new: list[BaseMessage] = [AIMessage("C", id="c"), HumanMessage("A", id="a", name="n")]
    assert memory.history.update(new, thread_id="t") == new
    after = rows_of(memory)
    assert [row.message for row in after] == [new[1], *said("b"), new[0]]
    assert [(row.seq, row.stored_at) for row in after] == [(row.seq, row.stored_at) for row in before]
    assert list(vectors(raw, prefix).values()) == ["A", "b", "C"]
    assert thread_of(memory).updated_at > thread.updated_at
    assert thread_of(memory).message_count == 3


def test_update_in_no_thread_is_an_error_with_the_remedy(plain: Memory) -> None:
    with pytest.raises(ThreadNotFoundError, match=r"no thread 'nowhere': create it with threads\.create\(\)"):
        plain.history.update(said("a"), thread_id="nowhere")


# ---------------------------------------------------------------------- against a list

_ids = st.sampled_from("abcdef")
_batch = st.lists(st.tuples(_ids, st.sampled_from(["", "cat", "dog bird", "word " * 500])), max_size=4)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _batch),
        st.tuples(st.just("update"), _batch),
        st.tuples(st.just("delete"), st.lists(_ids, max_size=3)),
        st.tuples(st.just("clear"), st.just([])),
    ),
    max_size=10,
)
_run = count()


@examples(15, server=True)
@given(steps=_steps)
def test_any_steps_leave_what_a_list_would_hold(
    memory: Memory, raw: redis.Redis, prefix: str, steps: list[tuple[str, Any]]
) -> None:
    model: dict[str, str] = {}
    thread = f"t{next(_run)}"
    memory.threads.create(thread_id=thread, user_id="u")
    for step, given_ in steps:
        messages = [HumanMessage(text, id=id) for id, text in given_] if step in ("append", "update") else []
        if step == "append":
            memory.history.append(messages, thread_id=thread, user_id="u")
            model |= dict(given_)
        elif step == "update" and any(id not in model for id, _ in given_):
            with pytest.raises(MessageNotFoundError):
                memory.history.update(messages, thread_id=thread)
        elif step == "update":
            memory.history.update(messages, thread_id=thread)
            model |= dict(given_)
        elif step == "delete":
            gone = {id for id in given_ if model.pop(id, None) is not None}
            assert memory.history.delete(given_, thread_id=thread) == len(gone)
        else:
            assert memory.history.clear(thread) == len(model)
            model.clear()
    assert [(message.id, message.content) for message in memory.history.messages(thread)] == list(model.items())
    assert thread_of(memory, thread).message_count == len(model)
    mine = [text for key, text in vectors(raw, prefix).items() if f"{{{thread}}}" in key]
    assert sorted(mine) == sorted(text[start:end] for text in model.values() for start, end in spans(text, 400))


def test_what_is_appended_may_have_been_said_earlier(plain: Memory) -> None:
    first, second = datetime(2020, 5, 1, 9, 30, tzinfo=UTC), datetime(2021, 6, 2, tzinfo=UTC)
    words = [SystemMessage("a prompt"), HumanMessage("q", id="q"), AIMessage("a", id="a")]
    for _ in range(2):  # a repeat changes nothing
        plain.history.append(words, thread_id="t", user_id="u", said_at=[first, first, second])
    plain.history.append([HumanMessage("q2"), AIMessage("a2")], thread_id="t", user_id="u", said_at=first)
    one = timedelta(microseconds=1)
    times = [row.stored_at for row in plain.history.page("t")]
    assert times == [first, second, second + one, second + 2 * one]  # they rise
    assert texts(plain.history.messages("t", until=first)) == ["q"]
    soon = datetime.now(UTC) + timedelta(seconds=30)  # clocks differ
    plain.history.append([HumanMessage("q3")], thread_id="t", user_id="u", said_at=soon)


@pytest.mark.parametrize(
    ("said_at", "seen"),
    [
        ([datetime(2020, 1, 1, tzinfo=UTC)], "1 times for 2 messages"),
        (datetime(2200, 1, 1, tzinfo=UTC), "do not rise from 1970 to now"),
        ([datetime(2021, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)], "do not rise from 1970 to now"),
        ("2020", "pass a datetime"),
        (5, "use a list of times"),
    ],
)
def test_impossible_times_are_refused(plain: Memory, said_at: Any, seen: str) -> None:
    with pytest.raises(OptionError, match=seen):
        plain.history.append([HumanMessage("q"), AIMessage("a")], thread_id="t", user_id="u", said_at=said_at)
    assert plain.threads.get("t") is None
