"""What was stored until a time is deleted: `history.delete(until=)`, with all that stands on it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem._redis.state import plan_of
from langchain_workingmem.errors import OptionError, ThreadOwnershipError
from langchain_workingmem.history import History
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.canaries import keys_with
from tests.helpers.crashes import ends_within
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, ask, calling, configured
from tests.helpers.types import Make

OLD = "zq1999"
FUTURE = datetime.now(UTC) + timedelta(days=999)
CALLS: list[Any] = [{"name": "look", "args": {}, "id": "1"}, {"name": "look", "args": {}, "id": "2"}]


def texts(memory: Memory, thread: str = "t", **more: Any) -> list[str]:
    return [str(one.text) for one in memory.history.messages(thread, **more)]


def time_of(memory: Memory, text: str, thread: str = "t") -> datetime:
    rows = memory.history.page(thread, limit=1000).items
    return next(row.stored_at for row in rows if row.message.text == text)


def test_what_was_stored_until_a_time_goes_and_half_a_call_is_not_shown(plain: Memory) -> None:
    words = [HumanMessage("q"), AIMessage("call", tool_calls=CALLS), ToolMessage("r1", tool_call_id="1")]
    words += [ToolMessage("r2", tool_call_id="2"), AIMessage("a"), HumanMessage("q2"), AIMessage("a2")]
    plain.history.append(words, thread_id="t", user_id="u")
    assert plain.history.delete(thread_id="t", until=time_of(plain, "q") - timedelta(microseconds=1)) == 0
    until = time_of(plain, "r1")
    assert plain.history.delete(thread_id="t", until=until) == 3
    assert plain.history.delete(thread_id="t", until=until) == 0
    assert texts(plain) == ["r2", "a", "q2", "a2"]
    shown = plain.context("q3", thread_id="t", user_id="u").messages
    assert [one.text for one in shown] == ["a", "q2", "a2", "q3"]


def test_a_question_that_was_edited_since_stays(plain: Memory) -> None:
    for words in ("dog", "cat"):
        plain.save_turn([HumanMessage(words, id="e"), AIMessage(f"a {words}")], thread_id="t", user_id="u")
    plain.history.delete(thread_id="t", until=plain.history.page("t").items[0].stored_at - timedelta(microseconds=1))
    assert texts(plain) == ["cat", "a cat"]


def test_other_branches_and_older_versions_go_too(plain: Memory, raw: redis.Redis, prefix: str) -> None:
    for answer in (f"first {OLD}", "second"):
        plain.save_turn([HumanMessage("q", id="q"), AIMessage(answer)], thread_id="t", user_id="u")
    plain.history.append([HumanMessage(f"edited {OLD}", id="e")], thread_id="t", user_id="u")
    until = time_of(plain, f"edited {OLD}")
    plain.history.update([HumanMessage("edited", id="e")], thread_id="t")
    plain.history.append([HumanMessage("new")], thread_id="t", user_id="u")
    plain.history.delete(thread_id="t", until=until)
    assert texts(plain, superseded=True) == ["new"]
    assert keys_with(raw, prefix, OLD) == []
    assert plain.threads.get("t").message_count == 1  # type: ignore[union-attr]


def test_many_go_in_slices_and_a_repeat_finishes(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(embeddings=WordEmbeddings(), recall=RecallOptions())
    memory.history.append([HumanMessage(f"{OLD} {at}", id=str(at)) for at in range(250)], thread_id="t", user_id="u")
    until = memory.history.page("t", limit=1, descending=True).items[0].stored_at
    memory.history.append([HumanMessage("new")], thread_id="t", user_id="u")
    for left in (151, 51):
        assert not ends_within(
            memory, plan_of(History.delete)(memory.history, thread_id="t", user_id="u", until=until), 2
        )
        assert len(memory.history.messages("t")) == left
    assert memory.history.delete(thread_id="t", until=until) == 50
    assert texts(memory) == ["new"]
    assert keys_with(raw, prefix, OLD) == []
    assert len(memory.recall.search("new", user_id="u").hits) == 1


def test_a_state_does_not_bring_back_what_was_deleted(bench: Bench) -> None:
    memory = bench.memory()
    model = Scripted.says("hi", "fine", calling(("look", {}), id="c"), "well", "good")

    def look() -> str:
        """Delete, while the turn goes on, all there is."""
        memory.history.delete(thread_id="t", until=FUTURE)
        return "seen"

    agent = create_agent(model, [look], middleware=[MemoryMiddleware(memory)], checkpointer=InMemorySaver())
    config = configured("t", "ann")
    bench.run(agent, ask("hello"), config)
    assert memory.history.delete(thread_id="t", until=FUTURE) == 2
    bench.run(agent, ask("how are you?"), config)
    assert texts(memory) == ["how are you?", "fine"]
    bench.run(agent, ask("look"), config)
    assert texts(memory) == []  # its question was deleted while the model answered
    bench.run(agent, ask("and now?"), config)
    assert texts(memory)[-2:] == ["and now?", "good"]
    assert "hello" not in texts(memory)


def test_calls_that_are_mistakes(plain: Memory) -> None:
    plain.history.append([HumanMessage("q", id="q")], thread_id="t", user_id="u")
    for arguments, seen in (({}, "neither"), ({"message_ids": ["q"], "until": FUTURE}, "both")):
        with pytest.raises(OptionError, match=f"{seen} message_ids .* until.*pass one of them"):
            plain.history.delete(thread_id="t", **arguments)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="pass a datetime"):
        plain.history.delete(thread_id="t", until="2026-01-01")  # type: ignore[arg-type]
    with pytest.raises(ThreadOwnershipError):
        plain.history.delete(thread_id="t", user_id="other", until=FUTURE)
    assert plain.history.delete(thread_id="unknown", until=FUTURE) == 0
    assert texts(plain) == ["q"]


@pytest.mark.parametrize("kept", [2, 4])  # how many of its messages the client has trimmed off in front
def test_a_list_without_ids_that_repeats_itself_brings_nothing_back(plain: Memory, kept: int) -> None:
    talk = [kind(text) for text in ("yes", "yes", "no") for kind, text in ((HumanMessage, text), (AIMessage, "ok"))]
    ids: Any = {"thread_id": "t", "user_id": "u"}
    for end in (2, 4, 6):
        plain.save_turn([one.model_copy() for one in talk[:end]], **ids)
    plain.history.delete([one.id or "" for one in plain.history.messages("t")[:2]], **ids)
    said = ["yes", "ok", "no", "ok"]
    for turn in ("yes", "no"):
        talk += [HumanMessage(turn), AIMessage("ok")]
        said += [turn, "ok"]
        context = plain.context([one.model_copy() for one in talk[kept:-1]], **ids)
        assert [one.text for one in context.messages][-1] == turn
        plain.save_turn([one.model_copy() for one in talk[kept:]], **ids)
        assert texts(plain) == said
