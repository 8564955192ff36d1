"""Several short conversations of a user in one call of the observer."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.observations.observing import _observe
from langchain_workingmem.observations.reading import log_key
from tests.helpers.archives import unsealed
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.observers import Echo, elements
from tests.helpers.types import Make
from tests.observations.test_lifecycle import everything

pytestmark = pytest.mark.programs


class Counting(Echo):
    """Notes what each call weighs and what it reads."""

    seen: Any = None

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **more: Any) -> Any:
        self.seen = [*(self.seen or []), messages]
        return super()._generate(messages, *arguments, **more)


def observing(make: Make, model: Any = None, **more: Any) -> Memory:
    """Make a memory whose log of a user is observed when the test says so."""
    settings = {"message_tokens": 10, "keep_tokens": 0, "background": True, **more}
    options = ObservationOptions(model=model or Counting(), scope="resource", **settings)
    return make(observations=options)


def talk(memory: Memory, thread: str, *, turns: int = 3, words: int = 8, owner: str = "u") -> None:
    """Store a conversation, without its observer."""
    filling = " ".join(["word"] * words)
    said = [
        [
            HumanMessage(f"zq{thread}x{at}x {filling}", id=f"m{at}"),
            AIMessage(f"noted {thread} {at} {filling}", id=f"a{at}"),
        ]
        for at in range(turns)
    ]
    memory.history.append([one for turn in said for one in turn], thread_id=thread, resource_id=owner)


@pytest.fixture
def waiting(make_memory: Make, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a memory and conversations that wait, and a call that observes them as the background does."""

    def made(count: int, model: Any = None, **more: Any) -> tuple[Memory, Any]:
        memory = observing(make_memory, model, message_tokens=more.pop("message_tokens", 10**9), **more)
        for at in range(count):
            talk(memory, f"t{at}")
        state = memory._core.state

        def observe() -> None:
            memory._core.run(_observe(state, log_key(state, "t0", "u"), None, wait=False))

        return memory, observe

    return made


def texts(memory: Memory, owner: str = "u") -> list[str]:
    return [one.text for one in memory.observations.get(resource_id=owner)]


def test_conversations_of_three_turns_share_calls(waiting: Any) -> None:
    """120 cost at most 20 calls, and twice their text in tokens."""
    memory, observe = waiting(24, Counting(together=6, characters=30), batch_tokens=1000)
    observe()
    log = memory.observations.get(resource_id="u")
    assert log.usage.calls == len(memory._core.state.observations.model.seen) <= 4
    assert log.pending_tokens <= 100  # the newest conversation is the present one
    assert {thread for one in log for thread, _ in one.sources} >= {f"t{at}" for at in range(23)}


def test_each_line_is_about_one_conversation_and_is_stored_with_it(waiting: Any) -> None:
    memory, observe = waiting(3, Counting(together=4))
    observe()
    first = memory._core.state.observations.model.seen[0]
    assert [number for _, number, _ in elements(first)] == list(range(1, len(elements(first)) + 1))
    assert str(first[1].text).count("<conversation>") == str(first[1].text).count("</conversation>") >= 2
    for one in memory.observations.get(resource_id="u"):
        assert len({thread for thread, _ in one.sources}) == 1
    # an answer about two conversations is split: each part has the numbers of its own
    assert {id for one in memory.observations.get(resource_id="u") for _, id in one.sources} >= {"m0", "a0", "m1", "a1"}


def test_nothing_of_a_deleted_conversation_is_left(waiting: Any, raw: redis.Redis, prefix: str) -> None:
    memory, observe = waiting(3)
    observe()
    memory.threads.delete("t1", resource_id="u")
    assert b"zqt1x" not in everything(raw, prefix)
    assert any("zqt0x" in text for text in texts(memory))


def test_a_conversation_that_goes_meanwhile_keeps_no_other_from_being_committed(
    make_memory: Make, waiting: Any, raw: redis.Redis, prefix: str
) -> None:
    other = make_memory()

    class Slow(Counting):
        def _generate(self, messages: list[BaseMessage], *arguments: Any, **more: Any) -> Any:
            other.threads.delete("t0", resource_id="u")
            return super()._generate(messages, *arguments, **more)

    memory, observe = waiting(4, Slow())
    observe()
    assert b"zqt0x" not in everything(raw, prefix)
    assert any("zqt1x" in text for text in texts(memory))
    assert memory.observations.get(resource_id="u").usage.calls <= 2


class RefusedError(Exception):
    status_code = 400


def test_one_that_a_provider_refuses_is_found_in_halves(waiting: Any) -> None:
    class Filtering(Counting):
        def _generate(self, messages: list[BaseMessage], *arguments: Any, **more: Any) -> Any:
            if "zqt5x1x" in str(messages[1].text):
                self.seen = [*(self.seen or []), messages]
                raise RefusedError("filtered")
            return super()._generate(messages, *arguments, **more)

    memory, observe = waiting(16, Filtering())
    observe()
    found = " ".join(texts(memory))
    assert all(f"zqt{at}x0x" in found for at in range(15) if at != 5)
    wasted = memory.observations.get(resource_id="u").usage.failures
    assert wasted <= 3 + 3 * 5
    assert "zqt5x0x" in found
    assert "Not noted" in found


def test_an_outage_ends_the_run_at_once(waiting: Any) -> None:
    memory, observe = waiting(6, Echo(failure=ConnectionError("down")))
    observe()
    assert memory._core.state.observations.model.calls == 3
    assert texts(memory) == []


def test_a_long_conversation_is_read_in_calls_of_its_own(waiting: Any) -> None:
    memory, observe = waiting(3, batch_tokens=400)
    talk(memory, "long", turns=16)
    talk(memory, "last", turns=1)
    observe()
    seen = memory._core.state.observations.model.seen
    of_long = [str(call[1].text) for call in seen if "zqlongx" in str(call[1].text).split("</known>")[-1]]
    assert not any("<conversation>" in text for text in of_long)
    assert any("<conversation>" in str(call[1].text) for call in seen)


def test_a_worker_observes_short_conversations_but_the_last_one(make_memory: Make) -> None:
    memory = observing(make_memory, Echo(), message_tokens=20_000, keep_tokens=10_000, background=False)
    for thread in ("one", "two"):
        talk(memory, thread, turns=1)
    for thread in ("one", "two"):
        memory.observations.observe(thread)
    assert {one.sources[0][0] for one in memory.observations.get(resource_id="u")} == {"one"}


def test_an_imported_conversation_with_vectors_is_counted_after_its_next_save(make_memory: Make) -> None:
    options = ObservationOptions(model=Echo(), scope="resource")
    memory = make_memory(embeddings=WordEmbeddings(), observations=options)
    talk(memory, "t", turns=4)
    records = unsealed(memory.users.export("u"))
    memory.users.delete("u")
    memory.users.load(records)
    talk(memory, "t", turns=1)  # the same words again add nothing
    memory.settled()
    alone = memory.context("x", thread_id="t", resource_id="u").observations
    assert alone is not None
    assert memory.observations.get(resource_id="u").pending_tokens == alone.pending_tokens > 0
