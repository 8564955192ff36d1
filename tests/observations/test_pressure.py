"""Back-pressure: above `block_after` a step waits for the observer, not longer than it has to, and nothing else waits."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool

from langchain_workingmem import Memory, MemoryContext, ObservationOptions, OptionError
from langchain_workingmem._text.said import weight_of
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.observations import pressure
from langchain_workingmem.observations.observer import runs
from tests.faces.nodes_samples import who
from tests.helpers.jumping import jumping
from tests.helpers.models import CONFIG, Bench, Scripted, agent_of, ask, calling, own
from tests.observations.noting import Noting, check_shown_once, words
from tests.observations.noting import observing as small
from tests.helpers.trips import Trips
from tests.observations.long_turn import STEP_SECONDS, Observer, run_turn

pytestmark = pytest.mark.in_turn("face")

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}
STEPS = 24
QUICK = STEPS * STEP_SECONDS + STEP_SECONDS  # seconds of a turn in which nothing waits


def test_it_is_at_least_what_makes_the_observer_due() -> None:
    assert ObservationOptions(model="x:y", message_tokens=10_000, block_after=10_000).block_after == 10_000
    with pytest.raises(OptionError, match=r"block_after=9999.*at least 10000"):
        ObservationOptions(model="x:y", message_tokens=10_000, block_after=9_999)


@pytest.mark.parametrize(("seconds", "scope"), [(8, "thread"), (8, "user")])
def test_a_step_waits_for_a_slow_observer(server: EmbeddedRedis, seconds: int, scope: str) -> None:
    found = run_turn(server.url, Observer(seconds=seconds), steps=STEPS, scale=0.25, block_after=9_000, scope=scope)
    assert 8_000 < found.requests.most_raw <= 9_000
    assert found.seconds > QUICK + seconds
    assert found.seconds < QUICK + (found.observer.calls + 1) * (seconds + 1)


def test_no_step_waits_while_the_observer_pauses(server: EmbeddedRedis) -> None:
    """One that is down is waited for until it has failed three times; then the window of the model is the limit."""
    observer = Observer(seconds=0.3, fails=lambda _: True)
    found = run_turn(server.url, observer, steps=STEPS, scale=0.25, block_after=8_000, window=20_000)
    assert observer.calls == 3
    assert 12_000 < found.requests.most_raw <= 16_000
    assert found.seconds < QUICK + 3


def test_a_step_waits_no_longer_than_the_timeout(server: EmbeddedRedis) -> None:
    """The observer hangs: each of its three attempts lasts as long as a step waits."""
    observer = Observer(seconds=1_000)
    found = run_turn(
        server.url, observer, steps=12, scale=0.25, block_after=8_000, timeout=timedelta(seconds=20), max_tokens=11_000
    )
    assert found.requests.most_raw > 10_000
    assert 12 * STEP_SECONDS + 40 < found.seconds < 12 * STEP_SECONDS + 70


@tool
def look(number: int) -> str:
    """Look at something: about 450 tokens."""
    return words(1000 + number, 300)


def blocking(model: Noting, **options: Any) -> ObservationOptions:
    limits = {"message_tokens": 2_000, "keep_tokens": 600, "batch_tokens": 1_500, "block_after": 3_000}
    return small(model, **{**limits, "background": True, **options})


@pytest.fixture
def impatient_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (runs, pressure):
        monkeypatch.setattr(module, "POLL", 0.01)


@pytest.mark.usefixtures("impatient_looks")
def test_an_agent_waits_and_then_sees_each_message_once(bench: Bench) -> None:
    observer = Noting()
    memory = bench.memory(observations=blocking(observer))
    model = Scripted.says(*(calling(("look", {"number": at}), id=f"c{at}") for at in range(20)), "done")
    observer.gate.clear()
    held = threading.Timer(0.3, observer.gate.set)
    held.start()

    bench.run(agent_of(model, memory, tools=[look]), ask(words(0)), {**CONFIG, "recursion_limit": 500})

    held.join()
    for at, seen in enumerate(model.seen):
        check_shown_once(seen, ["mark0x", *(f"mark{1000 + done}x" for done in range(at))])
        assert weight_of(own(seen)) <= 3_000 + 100


class Slow(Noting):
    """Takes a second of a clock that jumps."""

    async def _agenerate(self, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(1)
        return self._generate(*args, **options)


def fill(memory: Any, count: int) -> None:
    for at in range(count):
        memory.save_turn([HumanMessage(words(2 * at, 100)), AIMessage(words(2 * at + 1, 100))], **IDS)


@pytest.mark.parametrize("way", ["context", "node"])
def test_a_loop_of_a_programs_own_waits_when_it_loads(server: EmbeddedRedis, prefix: str, way: str) -> None:
    """Nothing else of the event loop does."""
    memory = Memory(server.url, key_prefix=prefix, observations=blocking(Slow()))
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            ticks.append(asyncio.get_running_loop().time())
            await asyncio.sleep(0.1)

    async def load(node: Any) -> MemoryContext:
        asked: list[BaseMessage] = [HumanMessage("mark999x")]
        if way == "context":
            return await memory.acontext(asked, **IDS)
        return (await node.ainvoke({"messages": asked}, who()))["memory"]  # type: ignore[no-any-return]

    async def run() -> tuple[float, MemoryContext]:
        loop, node = asyncio.get_running_loop(), memory.load_node(into="memory")
        for at in range(12):
            await memory.asave_turn([HumanMessage(words(2 * at, 100)), AIMessage(words(2 * at + 1, 100))], **IDS)
        beside = asyncio.create_task(tick())
        began = loop.time()
        context = await load(node)
        took = loop.time() - began
        beside.cancel()
        await memory.aclose()
        return took, context

    with jumping() as runner:
        took, context = runner.run(run())
    assert 0.9 < took < 10
    assert max(later - one for one, later in pairwise(ticks)) < 0.2
    assert weight_of(own(context.messages)) <= 3_000
    check_shown_once(context.messages, [*(f"mark{at}x" for at in range(24)), "mark999x"])


@pytest.mark.usefixtures("impatient_looks")
def test_without_a_background_only_others_are_waited_for(server: EmbeddedRedis, prefix: str) -> None:
    observer = Noting()
    memory = Memory(server.url, key_prefix=prefix, observations=blocking(observer, background=False))
    other = Memory(server.url, key_prefix=prefix, observations=blocking(observer, background=False))
    fill(memory, 12)
    assert weight_of(memory.context("mark999x", **IDS).messages) > 3_000
    assert not observer.asked

    observer.gate.clear()
    worker = threading.Thread(target=other.observations.observe, args=("t",))
    worker.start()
    while not observer.asked:
        time.sleep(0.005)
    threading.Timer(0.2, observer.gate.set).start()
    assert weight_of(own(memory.context("mark999x", **IDS).messages)) <= 3_000
    worker.join()
    for one in (memory, other):
        one.close()


def test_below_it_a_step_takes_no_further_round_trip(bench: Bench, trips: Trips) -> None:
    counts = []
    for at, block_after in enumerate((None, 400)):
        memory = bench.memory(observations=small(Noting(), block_after=block_after), key_prefix=f"{bench.prefix}{at}")
        model = Scripted.says()
        agent = agent_of(model, memory)
        for number in range(5):
            before = trips.count
            model.script.append("well")
            bench.run(agent, ask(words(number)))
        counts.append(trips.count - before)
    assert counts[0] == counts[1] > 0
