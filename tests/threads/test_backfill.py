"""The conversations of a checkpointer: in order, once, with their times and owners."""

from __future__ import annotations

from datetime import timedelta
from operator import itemgetter
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory, OptionError
from langchain_workingmem.models import BackfillReport
from langchain_workingmem.threads import copies
from tests.helpers.checkpoints import BEGAN, put_states

by_user = itemgetter("user_id")
HOUR = timedelta(hours=1)


def talk(*texts: str) -> list[BaseMessage]:
    """Questions and answers in turn, with ids."""
    kinds: tuple[Any, ...] = (HumanMessage, AIMessage)
    return [kinds[at % 2](text, id=f"m{at}") for at, text in enumerate(texts)]


def growing(messages: list[BaseMessage]) -> list[list[BaseMessage]]:
    """The states of a conversation, each with one message more."""
    return [messages[:at] for at in range(len(messages) + 1)]


def texts(memory: Memory, thread_id: str = "t", **options: Any) -> list[str]:
    return [str(one.text) for one in memory.history.messages(thread_id, **options)]


def fill(memory: Memory, saver: Any, user_id: Any = by_user, **options: Any) -> BackfillReport:
    return memory.threads.backfill(saver, user_id=user_id, progress=False, **options)


@pytest.mark.both_faces
def test_threads_are_stored_in_order_with_times_and_owners(memory: Memory) -> None:
    saver = InMemorySaver()
    told = [SystemMessage("be kind", id="s"), *talk("a cat", "a name", "Tom", "fine")]
    put_states(saver, "t", growing(told), user_id="ann")
    put_states(saver, "other", growing(talk("a boat", "a name")), user_id="bob")
    put_states(saver, "t", [talk("for a tool")], namespace="tools:1", user_id="ann")  # a subgraph
    put_states(saver, "of no user", growing(talk("hello")), user_id=None)
    put_states(saver, "empty", [[]], user_id="ann")
    report = fill(memory, saver, lambda metadata: metadata["user_id"])
    assert report == BackfillReport(threads=2, messages=6, skipped=2)
    rows = memory.history.page("t").items
    assert [row.stored_at for row in rows] == [BEGAN + at * HOUR for at in range(2, 6)]
    thread = memory.threads.get("t", user_id="ann")
    assert thread is not None
    assert (thread.created_at, thread.updated_at, thread.message_count) == (BEGAN + 2 * HOUR, BEGAN + 5 * HOUR, 4)
    assert memory.recall.search("a boat", user_id="bob").hits[0].message.text == "a boat"
    assert fill(memory, saver) == BackfillReport(known=2, skipped=2)
    assert texts(memory) == ["a cat", "a name", "Tom", "fine"]


def test_what_was_trimmed_in_front_comes_from_older_checkpoints(plain: Memory) -> None:
    saver = InMemorySaver()
    whole = talk(*"abcdefgh")
    summary = HumanMessage("a summary", id="s", additional_kwargs={"lc_source": "summarization"})
    put_states(saver, "t", [[], whole[:4], [summary, *whole[2:6]], [summary, *whole[5:]]], user_id="ann")
    fill(plain, saver)
    assert texts(plain) == [*"abcdefgh"]
    rows = plain.history.page("t").items
    assert [(row.stored_at - BEGAN) // HOUR for row in rows] == [1, 1, 1, 1, 2, 2, 3, 3]


def test_branches_that_were_left_and_messages_that_were_removed_stay_out(plain: Memory) -> None:
    saver = InMemorySaver()
    first = talk("q", "a", "q2", "a2")
    made = put_states(saver, "t", growing(first), user_id="ann")
    again = [*first[:2], HumanMessage("q2, said better", id="other"), AIMessage("b", id="b")]
    put_states(saver, "t", [again[:3], again, [*again[:3], AIMessage("c", id="c")]], after=made[2], user_id="ann")
    fill(plain, saver)
    assert texts(plain, superseded=True) == ["q", "a", "q2, said better", "c"]
    put_states(saver, "cleared", [first, [], [HumanMessage("new", id="n")]], user_id="ann")
    fill(plain, saver)
    assert texts(plain, "cleared") == ["new"]


def test_messages_without_ids_get_lasting_ones_and_deleted_ones_do_not_come_back(plain: Memory) -> None:
    saver = InMemorySaver()
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}, ("user", "hi")]
    made = put_states(saver, "t", [said[:1], said], user_id="ann")
    assert fill(plain, saver).messages == 3
    put_states(saver, "t", [[*said, HumanMessage("bye")]], after=made[-1], user_id="ann")
    assert fill(plain, saver) == BackfillReport(threads=1, messages=1)
    assert texts(plain, superseded=True) == ["hi", "hi", "hi", "bye"]
    plain.history.delete([str(plain.history.messages("t")[1].id)], thread_id="t")
    assert fill(plain, saver) == BackfillReport(known=1)
    assert texts(plain, superseded=True) == ["hi", "hi", "bye"]


def test_what_cannot_be_stored_is_left_and_named(plain: Memory) -> None:
    saver = InMemorySaver()
    plain.history.append([HumanMessage("mine")], thread_id="of bob", user_id="bob")
    plain.history.append([HumanMessage("else")], thread_id="known", user_id="ann")
    long = "x" * 2000
    for name in ("of bob", "known", long, "good"):
        put_states(saver, name, [talk("a", "b", "c")], user_id="ann")
    put_states(saver, "numbers", [[1, 2]], user_id="ann")
    put_states(saver, "bad id", [[HumanMessage("a", id="m"), HumanMessage("b", id=long)]], user_id="ann")
    report = fill(plain, saver)
    assert (report.threads, report.messages) == (1, 3)
    assert report.left.keys() == {"of bob", "known", long, "numbers", "bad id"}
    assert "does not belong to user 'ann'" in report.left["of bob"]
    assert "of 3 messages memory lacks 3" in report.left["known"]
    assert "delete the thread with threads.delete() and backfill again" in report.left["known"]
    assert "holds no messages" in report.left["numbers"]
    assert plain.threads.get("bad id") is None
    assert texts(plain, "known") == ["else"]
    plain.threads.delete("known")
    assert fill(plain, saver).threads == 1


class OnlyAsync(BaseCheckpointSaver[str]):
    """Lists checkpoints for async code only."""

    async def alist(self, *args: Any, **options: Any) -> Any:
        for one in list[Any]():
            yield one


def test_what_is_no_use_is_refused(plain: Memory, loop_runner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = InMemorySaver()
    put_states(saver, "t", [talk("a")], user_id=7)
    with pytest.raises(OptionError, match="checkpointer is of type dict: pass the checkpointer"):
        fill(plain, {})
    with pytest.raises(OptionError, match=r"OnlyAsync has no list\(\).*await the async twin"):
        fill(plain, OnlyAsync())
    assert loop_runner.run(plain.threads.abackfill(OnlyAsync(), user_id="ann")) == BackfillReport()
    assert "user_id is of type int" in fill(plain, saver).left["t"]
    monkeypatch.setattr(copies, "MOST_LISTED", 1)
    with pytest.raises(OptionError, match="pass thread_ids"):
        fill(plain, saver)
    assert plain.threads.get("t") is None
