"""What a conversation has left behind: out of sight, not destroyed, and gone with what is deleted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, MessageNotFoundError, ThreadOwnershipError
from langchain_workingmem._engine.plan import Command
from langchain_workingmem._redis.scripts import WRITE
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.history.save import save_turn
from tests.helpers.archives import unsealed
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings

Make = Callable[..., Memory]
TURN: dict[str, Any] = {"thread_id": "t", "user_id": "u"}

WORDS = {"q0": "my cat is Molly", "a0": "nice", "q1": "my dog is Rex", "a1": "sweet", "q2": "it rains", "a2": "indeed"}


def said(*names: str) -> list[BaseMessage]:
    return [(HumanMessage if name[0] == "q" else AIMessage)(WORDS.get(name, name), id=name) for name in names]


@pytest.fixture
def talked(memory: Memory) -> Memory:
    """Three turns, with vectors."""
    memory.save_turn(said(*WORDS), **TURN)
    return memory


def current(memory: Memory, thread: str = "t") -> list[str | None]:
    return [message.id for message in memory.history.messages(thread)]


def whole(memory: Memory, thread: str = "t", **options: Any) -> list[str | None]:
    return [message.id for message in memory.history.messages(thread, superseded=True, **options)]


def recalled(memory: Memory, query: str) -> set[str | None]:
    found = memory.recall.search(query, user_id="u", message_range=1)
    return {message.id for message in found.messages}


def keys_of(raw: redis.Redis, prefix: str) -> list[bytes]:
    return sorted(
        key for key in raw.scan_iter(f"{prefix}:*") if b":settings" not in key and not key.endswith(b":layout")
    )


# ---------------------------------------------------------------------- truncate


def test_what_stands_behind_a_message_is_left_behind(talked: Memory) -> None:
    assert talked.history.truncate("t", after="a0") == 4
    assert current(talked) == ["q0", "a0"]
    assert whole(talked) == list(WORDS)
    thread = talked.threads.get("t")
    assert thread is not None
    assert thread.message_count == 2


def test_nothing_shows_what_was_left_behind(talked: Memory) -> None:
    talked.history.truncate("t", after="a0")
    assert "q1" not in recalled(talked, WORDS["q1"])
    context = talked.context("my dog is Rex", **TURN)
    assert [message.id for message in context.messages][:-1] == ["q0", "a0"]
    assert "Rex" not in str(context.recalled.messages)
    assert [row.message.id for row in talked.history.page("t")] == ["q0", "a0"]
    assert talked.history.page("t").total == 2
    assert [row.message.id for row in talked.history.for_user("u")] == ["q0", "a0"]
    assert talked.history.for_user("u").total == 2
    assert talked.recall.reindex(user_id="u", progress=False) == 0


def test_the_conversation_goes_on_from_there(talked: Memory) -> None:
    talked.history.truncate("t", after="q1")
    talked.save_turn(said("another answer"), **TURN)
    assert current(talked) == ["q0", "a0", "q1", "another answer"]
    assert whole(talked) == [*WORDS, "another answer"]


def test_a_message_that_is_saved_again_is_back_with_its_vector(talked: Memory) -> None:
    talked.history.truncate("t", after="a0")
    talked.history.append(said("q1"), **TURN)
    assert current(talked) == ["q0", "a0", "q1"]
    assert "q1" in recalled(talked, WORDS["q1"])
    assert whole(talked) == list(WORDS)


@pytest.mark.parametrize("after", ["nobody", "q2"])
def test_a_message_that_is_not_on_the_branch_is_an_error(talked: Memory, after: str) -> None:
    talked.history.truncate("t", after="a1")
    with pytest.raises(MessageNotFoundError, match=after):
        talked.history.truncate("t", after=after)
    assert current(talked) == ["q0", "a0", "q1", "a1"]


def test_somebody_else_truncates_nothing(talked: Memory) -> None:
    with pytest.raises(ThreadOwnershipError):
        talked.history.truncate("t", after="q0", user_id="v")
    assert current(talked) == list(WORDS)
    assert talked.history.truncate("t", after="q0", user_id="u") == 5


def test_a_truncation_beside_writers_counts_right(talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    errors: list[BaseException] = []

    def write() -> None:
        try:
            with Memory(server.url, key_prefix=prefix) as rival:
                for at in range(60):
                    rival.history.append([HumanMessage(f"more {at}")], **TURN)
        except BaseException as error:  # noqa: BLE001  # shown by the test
            errors.append(error)

    rival = threading.Thread(target=write)
    rival.start()
    while rival.is_alive():
        talked.history.truncate("t", after="q0")
    rival.join()
    assert errors == []
    thread = talked.threads.get("t")
    assert thread is not None
    assert thread.message_count == len(current(talked))
    assert len(set(whole(talked))) == len(whole(talked)) == 66


# ---------------------------------------------------------------------- what is shown on demand


def test_an_answer_that_was_regenerated_is_kept_aside(talked: Memory) -> None:
    sent = said("q0", "a0", "q1")
    talked.context(sent, **TURN)
    talked.save_turn([*sent, AIMessage("lovely", id="b1")], **TURN)
    assert current(talked) == ["q0", "a0", "q1", "b1"]
    assert whole(talked) == ["q0", "a0", "q1", "a1", "q2", "a2", "b1"]


def test_an_edited_question_keeps_the_words_it_had(talked: Memory) -> None:
    edited = [*said("q0", "a0"), HumanMessage("my dog is Max", id="q1")]
    talked.context(edited, **TURN)
    talked.save_turn([*edited, AIMessage("brave", id="b1")], **TURN)
    found = talked.history.messages("t", superseded=True)
    assert [message.text for message in found] == [
        *("my cat is Molly", "nice", "my dog is Rex", "sweet", "it rains", "indeed", "my dog is Max", "brave"),
    ]
    assert [message.text for message in talked.history.messages("t")][2:] == ["my dog is Max", "brave"]
    assert talked.history.delete(["q1"], thread_id="t") == 2  # with the words that it had
    assert "my dog" not in str(talked.history.messages("t", superseded=True))


def test_a_reply_that_is_lost_keeps_no_second_version(
    talked: Memory, commands: list[Command], raw: redis.Redis
) -> None:
    edited = [*said("q0", "a0"), HumanMessage("my dog is Max", id="q1")]
    talked.context(edited, **TURN)
    commands.clear()
    talked.save_turn([*edited, AIMessage("brave", id="b1")], **TURN)
    before = [message.text for message in talked.history.messages("t", superseded=True)]
    (write,) = [command for command in commands if command[1] == WRITE.sha]
    bare: Any = raw
    bare.execute_command(*write)
    assert [message.text for message in talked.history.messages("t", superseded=True)] == before


# ---------------------------------------------------------------------- edits and deletions


def test_a_message_that_was_left_behind_can_be_deleted(talked: Memory) -> None:
    talked.history.truncate("t", after="a0")
    assert talked.history.delete(["q1", "q0", "q1"], thread_id="t") == 2
    assert whole(talked) == ["a0", "a1", "q2", "a2"]
    thread = talked.threads.get("t")
    assert thread is not None
    assert thread.message_count == 1


def branched(memory: Memory) -> None:
    """A thread with everything that a thread may hold: branches, other ids, an edited question, working memory."""
    memory.save_turn(said(*WORDS), **TURN)
    edited = [*said("q0", "a0"), HumanMessage("my dog is Max", id="q1")]
    memory.context(edited, **TURN)
    memory.save_turn([*edited, AIMessage("brave", id="b1")], **TURN)
    state = [HumanMessage(WORDS["q0"], id="other"), AIMessage("by state", id="s")]
    memory._core.run(save_turn(memory._core, state, **TURN, kind="state"))


def test_a_cleared_thread_keeps_nothing_but_itself(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    branched(memory)
    everything = len(whole(memory))
    assert memory.history.clear("t") == everything
    assert whole(memory) == []
    assert keys_of(raw, prefix) == [f"{prefix}:thread:{{t}}".encode()]
    thread = memory.threads.get("t")
    assert thread is not None
    assert thread.message_count == 0
    memory.save_turn(said("q0", "a0"), **TURN)
    assert current(memory) == ["q0", "a0"]


def test_every_message_deleted_by_its_id_leaves_only_its_id(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    branched(memory)
    memory.history.delete([id or "" for id in whole(memory)], thread_id="t")
    assert keys_of(raw, prefix) == [f"{prefix}:{kind}:{{t}}".encode() for kind in ("ids", "thread")]
    assert memory.context([HumanMessage("hello", id="other")], **TURN).messages[-1].id == "other"


def test_a_deleted_thread_leaves_nothing(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    branched(memory)
    assert memory.threads.delete("t")
    assert keys_of(raw, prefix) == []


def test_a_deleted_user_leaves_nothing(memory: Memory, raw: redis.Redis, prefix: str) -> None:
    branched(memory)
    report = memory.users.delete("u")
    assert (report.threads, report.messages, report.verified) == (1, 10, True)
    assert keys_of(raw, prefix) == []


# ---------------------------------------------------------------------- copies


def test_a_clone_is_a_copy_of_the_current_branch(memory: Memory) -> None:
    branched(memory)
    copy = memory.threads.clone("t", new_thread_id="copy")
    assert [message.text for message in memory.history.messages("copy")] == [
        message.text for message in memory.history.messages("t")
    ]
    assert memory.history.messages("copy", superseded=True) == memory.history.messages("copy")
    assert list(copy.message_ids) == current(memory)


def test_an_export_holds_what_was_left_behind_and_an_import_keeps_it_aside(make_memory: Make, prefix: str) -> None:
    memory = make_memory(embeddings=WordEmbeddings())
    branched(memory)
    records = unsealed(memory.users.export("u"))
    other = make_memory(embeddings=WordEmbeddings(), key_prefix=f"{prefix}x")
    assert other.users.load(records).messages == 10
    assert current(other) == current(memory)
    assert [message.text for message in other.history.messages("t", superseded=True)] == [
        message.text for message in memory.history.messages("t", superseded=True)
    ]


def test_a_thread_that_is_handed_over_brings_its_branches_along(memory: Memory) -> None:
    branched(memory)
    before = whole(memory)
    memory.threads.transfer("t", user_id="u", to="v")
    assert whole(memory, user_id="v") == before


def test_branches_expire_with_their_thread(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory(ttl=timedelta(milliseconds=300))
    branched(memory)
    wait_until(lambda: keys_of(raw, prefix) == [])
    assert whole(memory) == []


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(
    ("saved", "left"),
    [
        (["q1", "x1"], ["q0", "a0", "q1", "x1"]),
        (["q0", "x0"], ["q0", "x0"]),
        (["q0"], ["q0"]),
        (["q0", "x0", "q3", "a3"], ["q0", "x0", "q3", "a3"]),
    ],
)
def test_a_question_edited_by_its_id_supersedes_the_same_with_and_without_a_context(
    talked: Memory, saved: list[str], left: list[str], *, seen: bool
) -> None:
    turn = [HumanMessage(f"now {name}", id=name) if name[0] == "q" else AIMessage(name, id=name) for name in saved]
    if seen:
        talked.context(turn[:-1] if len(turn) > 1 else turn, **TURN)
    talked.save_turn(turn, **TURN)
    assert current(talked) == left
    before = whole(talked)
    assert {*WORDS} - {*before} == set()
    assert before.count(saved[0]) == 2  # its older version
    talked.save_turn(turn, **TURN)  # once more, as after a lost reply
    assert (current(talked), whole(talked)) == (left, before)
