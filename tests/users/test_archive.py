"""Export and import: everything comes back as it was, once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, ChatMessage, FunctionMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, TitleOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import EmbeddingError, ThreadOwnershipError
from langchain_workingmem.users import archive
from tests.helpers.archives import unsealed
from tests.helpers.crashes import ends_within
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Scripted
from tests.helpers.types import Make
from tests.users.guests import everything
from tests.users.samples import HEADER, THREAD, Record, message

EVERY_KIND: list[BaseMessage] = [
    HumanMessage([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,x"}}], id="h"),
    AIMessage(
        "",
        id="call",
        name="ann",
        tool_calls=[{"name": "find", "args": {"q": [], "big": 2**60}, "id": "c", "type": "tool_call"}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model_name": "m", "score": 0.1},
    ),
    ToolMessage("found", id="result", tool_call_id="c", artifact={"rows": [1, {"a": None}]}, status="error"),
    AIMessage("a\ud800b — ünï \x00", id="odd", additional_kwargs={"nested": {"empty": {}, "list": []}}),
    FunctionMessage(content="f", name="fun", id="f"),
    ChatMessage(content="c", role="critic", id="c"),
]


@pytest.fixture
def stocked(make_memory: Make, embeddings: WordEmbeddings) -> Memory:
    memory = make_memory(embeddings=embeddings, working_memory=WorkingMemoryOptions(template="", revisions=2))
    metadata = {"tags": ["x", {"y": 1.5}], "none": None}
    memory.threads.create(thread_id="{a} | b", user_id="u", title="Ünï", metadata=metadata)
    memory.history.append(EVERY_KIND, thread_id="{a} | b", user_id="u")
    memory.history.append([HumanMessage(f"topic {place}") for place in range(450)], thread_id="long", user_id="u")
    memory.threads.clone("{a} | b", new_thread_id="copy")
    memory.threads.create(thread_id="empty", user_id="u")
    for text in ("one", "two", "three"):
        memory.working_memory.update(text, user_id="u")
    memory.history.append([HumanMessage("mine")], thread_id="other", user_id="v")
    return memory


def exported(memory: Memory, user: str = "u", *, vectors: bool = False) -> list[Record]:
    """Export, through the JSON lines that a file would hold."""
    lines = [json.dumps(record) for record in unsealed(memory.users.export(user, vectors=vectors))]
    return [json.loads(line) for line in lines]


@pytest.mark.in_turn("face")
def test_what_is_imported_is_what_was_exported_and_its_vectors_are_not_made_again(
    stocked: Memory, embeddings: WordEmbeddings, raw: redis.Redis, prefix: str
) -> None:
    before = everything(raw, prefix, but=(b"version", b"edits", b"call"))
    records = exported(stocked, vectors=True)
    stocked.users.delete("u")
    embeddings.calls.clear()
    report = stocked.users.load(records)
    assert (report.user_id, report.threads, report.messages, report.skipped) == ("u", 4, 462, 0)
    assert (report.working_memories, report.revisions) == (1, 2)
    assert embeddings.calls in ([], [["How large are the vectors?"]])
    assert everything(raw, prefix, but=(b"version", b"edits", b"call")) == before
    assert exported(stocked, vectors=True) == records
    assert stocked.recall.search("topic 7", user_id="u").hits[0].message.content == "topic 7"
    assert stocked.recall.reindex(user_id="u", progress=False) == 0


@pytest.mark.parametrize("vectors", [True, False])
def test_vectors_of_other_settings_are_made_anew(stocked: Memory, make_memory: Make, *, vectors: bool) -> None:
    records = exported(stocked, vectors=vectors)
    other = make_memory(key_prefix="z" + stocked._core.state.keys.prefix, embeddings=WordEmbeddings(16))
    other.users.load(records, user_id="w")
    assert other.recall.search("topic 7", user_id="w").hits[0].message.content == "topic 7"
    assert other.recall.reindex(user_id="w", progress=False) == 0


def test_a_second_import_changes_nothing(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    records = exported(stocked)
    stocked.history.append([HumanMessage("changed", id="h")], thread_id="{a} | b", user_id="u")
    stocked.working_memory.update("four", user_id="u")
    stocked.threads.update("empty", title="named since")
    before = everything(raw, prefix)
    report = stocked.users.load(records)
    assert (report.threads, report.messages, report.skipped, report.working_memories) == (0, 0, 462, 0)
    assert everything(raw, prefix) == before


def test_an_import_that_ends_between_two_versions_of_a_question_goes_on(plain: Memory) -> None:
    for words in ("my dog", "my cat"):
        plain.save_turn([HumanMessage(words, id="e"), AIMessage("good")], thread_id="pets", user_id="u")
    records = exported(plain)
    for steps in range(1, 12):
        plain.users.delete("u")
        ends_within(plain, archive.load(plain._core.state, records, None), steps)
        plain.users.load(records)
        assert exported(plain) == records, steps


def test_a_model_that_fails_leaves_everything_imported(
    stocked: Memory, make_memory: Make, embeddings: WordEmbeddings
) -> None:
    records = exported(stocked)
    stocked.users.delete("u")
    embeddings.broken = RuntimeError("down")
    fresh = make_memory(embeddings=embeddings)  # whose cache has no vectors
    with pytest.raises(EmbeddingError) as failure:
        fresh.users.load(records)
    assert "everything is stored" in failure.value.__notes__[0]
    assert exported(stocked) == records
    embeddings.broken = None
    stocked.recall.reindex(user_id="u", progress=False)
    assert stocked.recall.search("topic 7", user_id="u").hits[0].message.content == "topic 7"


def test_threads_of_somebody_else_are_refused(stocked: Memory, raw: redis.Redis, prefix: str) -> None:
    records = exported(stocked)
    before = everything(raw, prefix)
    with pytest.raises(ThreadOwnershipError, match=r"\{a\} \| b") as refused:
        stocked.users.load(records, user_id="w")
    assert refused.value.__notes__ == ["record 3 names it; nothing was imported"]
    assert everything(raw, prefix) == before


def test_what_was_deleted_or_handed_over_meanwhile_is_left_out(
    stocked: Memory, server: EmbeddedRedis, prefix: str
) -> None:
    with Memory(server.url, key_prefix=prefix) as memory:
        records = memory.users.export("u")
        assert next(records)["kind"] == "header"
        memory.threads.transfer("copy", user_id="u", to="v")
        memory.threads.delete("long")
        assert {record["id"] for record in records if record["kind"] == "thread"} >= {"{a} | b", "empty"}
        memory.threads.delete("empty")
        left = {record["id"] for record in unsealed(memory.users.export("u")) if record["kind"] == "thread"}
        assert left == {"{a} | b"}


def test_a_copy_of_a_thread_without_messages_knows_what_was_deleted_from_it(plain: Memory) -> None:
    turn = [HumanMessage("secret", id="q"), AIMessage("I see", id="a")]
    plain.save_turn(turn, thread_id="t", user_id="u")
    plain.history.delete(["q", "a"], thread_id="t")
    records = [*plain.users.export("u")]
    plain.users.delete("u")
    for _ in range(2):
        plain.users.load(records)
    plain.save_turn([*turn, HumanMessage("new", id="q2")], thread_id="t", user_id="u")
    assert [one.id for one in plain.history.messages("t")] == ["q2"]


async def test_an_import_reads_records_that_come_later(server: EmbeddedRedis, prefix: str) -> None:
    async def records() -> AsyncIterator[Record]:
        for record in (HEADER, THREAD, message("1"), message("2")):
            await asyncio.sleep(0)
            yield record

    async with Memory(server.url, key_prefix=prefix) as memory:
        assert (await memory.users.aload(records())).messages == 2
        kinds = [record["kind"] async for record in memory.users.aexport("u")]
        assert kinds == ["header", "thread", "message", "message", "end"]
        async for record in memory.users.aexport("u"):
            assert record["kind"] == "header"
            break
        assert (await memory.users.aload([HEADER, THREAD, message("1")])).skipped == 1


@pytest.mark.parametrize("before", [0, 450])
def test_a_title_that_a_model_made_goes_with_its_message_in_every_copy(
    make_memory: Make, prefix: str, before: int
) -> None:
    """`before` messages come in front of the one that it was made from: a copy is written in steps of 200."""
    greetings = [AIMessage("hello", id=f"g{at}") for at in range(before)]
    memory = make_memory(title=TitleOptions(model=Scripted.says("Zebra")))
    told = [*greetings, HumanMessage("my zebra", id="q"), AIMessage("yes", id="a")]
    memory.save_turn(told, thread_id="t", user_id="u")
    memory.settled()

    def titles(memory: Memory) -> dict[str, str | None]:
        return {one.id: one.title for one in memory.threads.list(user_id="u")}

    copied = memory.threads.clone("t", new_thread_id="copy")
    assert memory.threads.clone("t", new_thread_id="tail", last_messages=1).thread.title is None
    memory.threads.delete("tail")
    memory.threads.clone("t", new_thread_id="mine", title="Mine")
    records = unsealed(memory.users.export("u"))
    memory.history.delete(["q"], thread_id="t")
    memory.history.delete([copied.message_ids["q"]], thread_id="copy")
    assert titles(memory) == {"t": None, "copy": None, "mine": "Mine"}
    other = make_memory(key_prefix=f"{prefix}-b")
    other.users.load(records)
    assert titles(other) == {"t": "Zebra", "copy": "Zebra", "mine": "Mine"}
    other.history.update([HumanMessage("my cat", id="q")], thread_id="t")
    assert titles(other) == {"t": None, "copy": "Zebra", "mine": "Mine"}
    last = make_memory(key_prefix=f"{prefix}-c")
    last.users.load([one for one in records if one.get("message", {}).get("data", {}).get("id") != "q"])  # taken out
    assert titles(last) == {"t": None, "copy": "Zebra", "mine": "Mine"}


def test_of_two_versions_of_a_question_the_one_that_is_shown_counts_in_a_copy(memory: Memory) -> None:
    for words in ("my dog", "my cat", "my dog"):
        memory.save_turn([HumanMessage(words, id="e"), AIMessage("good")], thread_id="pets", user_id="u")
    assert memory.history.messages("pets")[0].text == "my dog"
    records = exported(memory)
    memory.users.delete("u")
    memory.users.load(records)
    assert [hit.message.text for hit in memory.recall.search("my dog", user_id="u")][:1] == ["my dog"]
    memory.history.update([HumanMessage("my hen", id="e")], thread_id="pets")
    assert memory.history.messages("pets")[0].text == "my hen"
