"""What happens to lines: deletions, branches, users, copies, processes that are killed."""

from __future__ import annotations

import sys
from collections import Counter
from threading import Barrier, Thread
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import HistoryOptions, Memory, ThreadOwnershipError
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import ObservationNotFoundError
from tests.helpers.canaries import keys_with
from tests.helpers.programs import Forked
from tests.helpers.types import Make
from tests.observations.observers import Call, Observer, observing, turn, words
from tests.observations.test_observing import IDS, canaries, log_words, raw_words, talk


@pytest.fixture
def observer() -> Observer:
    return Observer(size=2)


@pytest.fixture
def observed(make_memory: Make, observer: Observer) -> Memory:
    """A thread of six turns, of which the first five are observed, two messages a line."""
    memory = make_memory(observations=observing(observer, batch_tokens=70, block_after=1_000))
    talk(memory, 0, 6)
    memory.observations.observe("t")
    assert log_words(memory) == canaries(0, 10)
    return memory


def test_deleting_and_editing_take_the_lines(observed: Memory, raw: redis.Redis, prefix: str) -> None:
    """What the lines covered is raw again, and the words of the old messages are in no key."""
    observed.history.delete(["m1"], thread_id="t")
    observed.history.update([HumanMessage(words(77), id="m4")], thread_id="t")
    assert raw_words(observed) == ["zq0x", "zq77x", "zq5x", *canaries(10, 12)]
    assert not {"zq0x", "zq1x", "zq4x"} & {*log_words(observed)}
    assert not keys_with(raw, prefix, "zq1x")
    assert not keys_with(raw, prefix, "zq4x")


def test_what_happens_while_the_model_thinks_is_not_overwritten(make_memory: Make, observer: Observer) -> None:
    """A message is deleted between the question to the model and its answer: the answer is thrown away."""
    memory, deleted = make_memory(observations=observing(observer)), list[int]()

    def delete(_: Call) -> None:
        if not deleted:
            deleted.append(memory.history.delete(["m0"], thread_id="t"))

    observer.during = delete
    talk(memory, 0, 6)
    memory.observations.observe("t")
    assert "zq0x" in observer.calls[0].canaries
    assert log_words(memory) == canaries(1, 10)


def test_lines_hide_and_return_with_their_branch(observed: Memory) -> None:
    """A list that goes back to an earlier question leaves the lines behind, and brings them back when it returns."""
    history = observed.history.messages("t")
    observed.save_turn([*history[:4], HumanMessage("else", id="e0"), AIMessage("fine", id="e1")], **IDS)
    assert log_words(observed) == canaries(0, 4)
    observed.save_turn([*history, HumanMessage("again", id="e2"), AIMessage("well", id="e3")], **IDS)
    assert log_words(observed) == canaries(0, 10)


def test_a_context_of_another_branch_shows_none_of_its_lines(observed: Memory) -> None:
    """Also before that turn is saved."""
    history = observed.history.messages("t")
    context = observed.context([*history[:4], HumanMessage("something else")], **IDS)
    assert log_words(observed) == canaries(0, 10)
    shown = " ".join(str(one.text) for one in context.messages)
    assert all(word in shown for word in canaries(0, 4))
    assert not any(word in shown.split() for word in canaries(4, 12))


def test_a_list_may_hold_messages_that_are_not_stored(observed: Memory) -> None:
    given = [
        *observed.history.messages("t"),
        HumanMessage("new", id="n0"),
        AIMessage("newer", id="n1"),
        HumanMessage("what?"),
    ]
    assert observed.context(given, **IDS).observations


def test_words_of_a_deleted_message_go_from_condensed_lines_too(
    make_memory: Make, raw: redis.Redis, prefix: str
) -> None:
    """Two condensed lines come from the same note: both go with its message."""
    observer = Observer(size=1)

    def answer(call: Call, _: int) -> AIMessage:
        if not call.is_reflecting:
            return AIMessage("\n".join(f"- [{at}] {call.canaries[at - 1]} and some more words" for at in call.shown))
        last = len(call.shown)
        return AIMessage(
            f"- [1,2] {' '.join(call.canaries[:2])}\n- [{','.join(map(str, range(2, last + 1)))}] and {call.canaries[1]}"
        )

    observer.__dict__["answer"] = answer
    memory = make_memory(observations=observing(observer, observation_tokens=60))
    talk(memory, 0, 6)
    log = memory.observations.observe("t")
    word = log.observations[1].text.split()[1]
    memory.history.delete([f"m{word[2:-1]}"], thread_id="t")
    assert not keys_with(raw, prefix, word)


def test_a_line_that_a_person_deletes_is_not_made_again(observed: Memory, observer: Observer) -> None:
    line = observed.observations.get(thread_id="t").observations[1]
    log = observed.observations.delete(line.id, thread_id="t", user_id="ann")
    assert line.id not in [one.id for one in log]
    asked = len(observer.calls)
    observed.observations.observe("t")
    assert len(observer.calls) == asked
    assert raw_words(observed) == canaries(10, 12)
    with pytest.raises(ObservationNotFoundError):
        observed.observations.delete(line.id, thread_id="t")


def test_a_cleared_log_is_made_anew(observed: Memory, observer: Observer) -> None:
    assert not observed.observations.clear(thread_id="t")
    assert raw_words(observed) == canaries(0, 12)
    asked = len(observer.calls)
    assert observed.observations.observe("t")
    assert len(observer.calls) > asked


def test_a_line_has_its_messages(observed: Memory) -> None:
    line = observed.observations.get(thread_id="t").observations[1]
    found = observed.observations.sources(line.id, thread_id="t", message_range=0)
    assert [hit.message.id for hit in found.hits] == [id for _, id in line.sources] == ["m2", "m3"]
    with pytest.raises(ThreadOwnershipError):
        observed.observations.sources(line.id, user_id="bob")


def test_the_messages_of_a_line_have_what_was_said_around_them(observed: Memory) -> None:
    """As in recall: beside a message that was deleted the next one is shown."""
    line = observed.observations.get(thread_id="t").observations[1]
    observed.history.delete(["m1"], thread_id="t")
    first, last = observed.observations.sources(line.id, thread_id="t", message_range=(1, 2)).hits
    assert [one.id for one in (*first.before, first.message, *first.after)] == ["m0", "m2", "m3", "m4"]
    assert [one.id for one in (*last.before, last.message, *last.after)] == ["m2", "m3", "m4", "m5"]


def test_a_log_of_a_user_has_all_threads_and_no_other_user(make_memory: Make) -> None:
    """Each line stands under its conversation, and a thread that is given away or deleted is left out."""
    memory = make_memory(observations=observing(Observer(), scope="user"))
    for at, (thread, user) in enumerate([("a", "ann"), ("b", "ann"), ("c", "bob")]):
        for number in range(6 * at, 6 * at + 6):
            memory.save_turn(turn(number), thread_id=thread, user_id=user)
        memory.observations.observe(thread)
    log = memory.observations.get(user_id="ann")
    assert {*log_words(memory, user_id="ann")} == {*canaries(0, 10), *canaries(12, 22)}
    assert log.of_user
    assert "(conversation B)" in log.as_text()
    shown = " ".join(str(one.text) for one in memory.context("hello", thread_id="new", user_id="ann").messages)
    assert "zq0x" in shown
    assert "zq12x" in shown
    assert "zq24x" not in shown
    memory.threads.transfer("b", user_id="ann", to="bob")
    memory.threads.delete("a")
    assert not memory.observations.get(user_id="ann")
    assert {*log_words(memory, user_id="bob")} == {*canaries(12, 22), *canaries(24, 34)}


def test_a_copy_has_the_lines(observed: Memory) -> None:
    observed.threads.clone("t", new_thread_id="copy")
    assert log_words(observed, thread_id="copy") == canaries(0, 10)


def test_an_archive_has_the_lines(observed: Memory, make_memory: Make, prefix: str) -> None:
    other = make_memory(key_prefix=f"{prefix}b")
    other.users.load(observed.users.export("ann"))
    assert log_words(other) == canaries(0, 10)


def test_a_deleted_user_leaves_no_line(observed: Memory, raw: redis.Redis, prefix: str) -> None:
    observed.users.delete("ann")
    assert not [*raw.scan_iter(f"{prefix}:rows:*")]
    assert not keys_with(raw, prefix, "zq0x")


def test_two_processes_pay_each_batch_once(make_memory: Make, observer: Observer) -> None:
    memories = [make_memory(observations=observing(observer)) for _ in range(2)]
    talk(memories[0], 0, 12)
    together = Barrier(2)

    def observe(memory: Memory) -> None:
        together.wait()
        memory.observations.observe("t")

    both = [Thread(target=observe, args=(memory,)) for memory in memories]
    for one in both:
        one.start()
    for one in both:
        one.join()
    paid = Counter(word for call in observer.calls for word in call.canaries)
    assert paid == Counter(canaries(0, 22))
    assert raw_words(memories[0]) == raw_words(memories[1]) == canaries(22, 24)


DYING = """
import os, signal, sys
from langchain_workingmem import Memory
from tests.observations.observers import Observer, observing

def die(call):
    print("answering", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

from datetime import timedelta
options = observing(Observer(during=die), timeout=timedelta(milliseconds=500))
Memory(sys.argv[1], key_prefix=sys.argv[2], observations=options).observations.observe("t")
"""


@pytest.mark.programs
def test_a_process_that_is_killed_loses_its_call_and_nothing_else(
    make_memory: Make, server: EmbeddedRedis, prefix: str, raw: redis.Redis
) -> None:
    """It has the lease, and the model has answered: another process goes on when the lease is over."""
    memory = make_memory(observations=observing(Observer(), block_after=1_000))
    talk(memory, 0, 6)
    with Forked([sys.executable, "-c", DYING, server.url, prefix], stdout=-1, of="library") as dying:
        assert dying.stdout
        assert dying.stdout.readline() == "answering\n"
        assert dying.wait(10) == -9
    assert raw_words(memory) == canaries(0, 12)
    key = f"{prefix}:rows:{{t}}"
    holder, until = raw.hget(key, "lease:observations").decode().split()  # type: ignore[union-attr]
    assert int(until) - raw.time()[0] * 1000 <= 17_000
    raw.hset(key, "lease:observations", f"{holder} 1")  # as if it were over
    memory.observations.observe("t")
    assert raw_words(memory) == canaries(10, 12)
    assert log_words(memory) == canaries(0, 10)


def test_a_turn_takes_one_round_trip(make_memory: Make, trips: Any) -> None:
    memory = make_memory(history=HistoryOptions(last_messages=None), observations=observing(Observer()))
    talk(memory, 0, 6)
    memory.observations.observe("t")
    assert trips.of(lambda: memory.context("what now?", **IDS)) == 1
