"""What happens to lines: deletions, branches, users, copies, processes that are killed."""

from __future__ import annotations

import sys
from collections import Counter
from threading import Barrier, Thread

import pytest
import redis

from langchain_workingmem import Memory, ThreadOwnershipError
from langchain_workingmem.derived import Rows
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import ObservationNotFoundError
from langchain_workingmem.observations.log import body_of
from langchain_workingmem.observations.part import log_of
from tests.helpers.canaries import keys_with
from tests.helpers.programs import Forked
from tests.helpers.types import Make
from tests.observations.observers import Observer, observing, turn
from tests.observations.test_observing import canaries, log_words, raw_words, talk


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


def test_a_line_that_a_person_deletes_is_not_made_again(observed: Memory, observer: Observer) -> None:
    line = observed.observations.get(thread_id="t").observations[1]
    log = observed.observations.delete(line.id, thread_id="t", user_id="ann")
    assert line.id not in [one.id for one in log]
    asked = len(observer.calls)
    observed.observations.observe("t")
    assert len(observer.calls) == asked
    assert raw_words(observed) == canaries(10, 12)
    for id, thread in ((line.id, "t"), ("nowhere:1", "nowhere")):
        with pytest.raises(ObservationNotFoundError):
            observed.observations.delete(id, thread_id=thread)


def test_a_line_has_its_messages(observed: Memory) -> None:
    line = observed.observations.get(thread_id="t").observations[1]
    found = observed.observations.sources(line.id, thread_id="t", message_range=0)
    assert [hit.message.id for hit in found.hits] == [id for _, id in line.sources] == ["m2", "m3"]
    log = observed.observations
    for call in (log.sources, log.delete):
        with pytest.raises(ThreadOwnershipError):
            call(line.id, user_id="bob")
    with pytest.raises(ThreadOwnershipError):
        log.clear(thread_id="t", user_id="bob")


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
    private = memory.context("hello", thread_id="a", user_id="ann", recall=False).messages
    assert ["zq12x" in str(private), "zq0x" in str(private)] == [False, True]
    memory.threads.transfer("b", user_id="ann", to="bob")
    memory.threads.delete("a")
    assert not memory.observations.get(user_id="ann")
    assert {*log_words(memory, user_id="bob")} == {*canaries(12, 22), *canaries(24, 34)}


def test_a_log_shows_the_lines_that_it_is_given(make_memory: Make) -> None:
    """Two branches may leave out different lines of one thread, as many."""
    state = make_memory()._core.state
    bodies = {id: body_of(f"line {id}", 1, "normal", [], 1) for id in (1, 2, 3)}
    shown = [Rows("1.3 without some", rows={id: bodies[id] for id in ids}) for ids in ((1, 3), (2, 3))]
    logs = [log_of(state, "u", {"t": rows}) for rows in shown]
    assert [[one.text for one in log] for log in logs] == [["line 1", "line 3"], ["line 2", "line 3"]]


def test_servers_with_threads_of_one_name_do_not_wait_for_each_other(make_memory: Make, prefix: str) -> None:
    def elsewhere(_: object) -> None:
        model.during = None
        with Memory.embedded(observations=observing(Observer()), key_prefix=prefix) as other:
            talk(other, 0, 6)
            other.observations.observe("t")
            assert log_words(other) == canaries(0, 10)

    model = Observer(during=elsewhere)
    memory = make_memory(observations=observing(model))
    talk(memory, 0, 6)
    memory.observations.observe("t")
    assert log_words(memory) == canaries(0, 10)


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
