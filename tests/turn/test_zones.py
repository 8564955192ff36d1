"""The time zone of a user, and the time of a question: what they change in a turn and a search, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, message_to_dict

from langchain_workingmem import Ids, Memory, OptionError, RecallOptions
from langchain_workingmem.importers import header
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, agent_of, ask, configured, remembered
from tests.helpers.types import Invoke, Make

pytestmark = pytest.mark.in_turn("face")

LAKE, MILL = "We walked to the red lake.", "We walked to the old mill."
# on Kiritimati at 13:00 on the 24th, at 1:00 on the 23rd
SAID = {LAKE: datetime(2026, 11, 23, 23, tzinfo=UTC), MILL: datetime(2026, 11, 22, 11, tzinfo=UTC)}
NOW = datetime(2026, 11, 24, 2, tzinfo=UTC)
QUESTION = "Where have we walked yesterday?"
FAR = "Pacific/Kiritimati"


def load(memory: Memory, said: Iterable[tuple[str, datetime]]) -> Memory:
    messages = [
        {
            "kind": "message",
            "thread_id": "walks",
            "stored_at": at.isoformat(),
            "message": message_to_dict(HumanMessage(text, id=text)),
        }
        for text, at in said
    ]
    memory.users.load([header("ann"), {"kind": "thread", "id": "walks"}, *messages])
    return memory


@pytest.fixture
def make(make_memory: Make) -> Make:
    def make(**options: Any) -> Memory:
        recall = RecallOptions(top_k=1, message_range=0)
        return load(make_memory(embeddings=WordEmbeddings(), recall=recall, **options), reversed(SAID.items()))

    return make


def found(memory: Memory, **more: Any) -> str:
    (hit,) = memory.recall.search(QUESTION, user_id="ann", now=NOW, **more)
    return str(hit.message.text)


def shown(memory: Memory, **more: Any) -> str:
    context = memory.context(QUESTION, thread_id="t", user_id="ann", now=NOW, **more)
    return remembered(context.messages)


def test_a_function_gets_the_ids_of_the_call(make: Make) -> None:
    asked: list[Ids] = []

    def zone_of(ids: Ids) -> str:
        asked.append(ids)
        return FAR if ids.user_id == "ann" else "UTC"

    memory = make(timezone=zone_of)
    assert f'time="2026-11-23 01:00 {FAR}"' in shown(memory)
    assert found(memory) == MILL
    result = memory.recall.search(QUESTION, thread_id="walks", now=NOW)  # the owner is looked up
    assert [hit.message.text for hit in result] == [MILL]
    assert f'time="2026-11-23 01:00 {FAR}"' in result.as_text(FAR)
    assert 'time="2026-11-22 11:00 UTC"' in result.as_text()
    assert asked == [Ids("t", "ann"), Ids(None, "ann"), Ids("walks", "ann")]


@pytest.mark.parametrize("now", [datetime(2026, 11, 24), "2026-11-24"])
def test_a_time_without_a_zone_is_refused(memory: Memory, plain: Memory, now: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: memory.recall.search("walk", user_id="ann", now=now),
        lambda: memory.context("walk", thread_id="t", user_id="ann", now=now),
        lambda: memory.load_node(now=now),
        lambda: plain.load_node(now=now),
    ]
    for call in calls:
        with pytest.raises(OptionError, match=r"now=.*: pass a datetime with a time zone"):
            call()


def test_what_names_no_zone_is_refused_with_one_that_does(make_memory: Make) -> None:
    for name in ("Mars", "../UTC", "Europe/Berlin\0", "\ud800"):
        with pytest.raises(OptionError, match=r"^timezone is .*: use an IANA name such as 'Europe/Berlin'"):
            Memory(timezone=name)
    given: Any
    for given, seen in (("Mars", "is 'Mars'"), (None, "is of type NoneType")):
        memory = make_memory(timezone=lambda _, given=given: given)
        with pytest.raises(OptionError, match=rf"the function passed as timezone returned {seen}: use an IANA name"):
            memory.context("Hello", thread_id="t", user_id="ann")


@pytest.mark.parametrize("call", [{"timezone": "Mars"}, {"timezone": 5}, {"now": NOW}, {"recall": {"now": NOW}}])
def test_a_call_names_a_known_zone_and_no_time(bench: Bench, call: dict[str, Any]) -> None:
    agent = agent_of(Scripted.says("a"), bench.recalling())
    with pytest.raises(OptionError, match=r"config\['configurable'\]\['memory'\]"):
        bench.run(agent, ask("Hello"), configured("t", "ann", memory=call))


def at_lake(zone: str) -> str:
    return {"UTC": 'time="2026-11-23 23:00 UTC"', FAR: f'time="2026-11-24 13:00 {FAR}"'}[zone] + f">{LAKE}"


@pytest.mark.parametrize("of_call", [None, FAR, "UTC"])
def test_the_search_of_a_model_is_in_the_zone_of_the_call(make: Make, invoke: Invoke, of_call: str | None) -> None:
    """Also the days that the model names."""
    memory = make(timezone=FAR if of_call is None else "Europe/Berlin")
    (tool,) = memory.tools(include=["search_memory"])
    zone = of_call or FAR
    config = configured("t", "ann", memory={"timezone": zone} if of_call else {})
    own_day = "2026-11-24" if zone == FAR else "2026-11-23"
    assert at_lake(zone) in invoke(tool, {"query": "red lake", "since": own_day, "until": own_day}, config)
    other = "2026-11-23" if zone == FAR else "2026-11-24"
    assert LAKE not in invoke(tool, {"query": "red lake", "since": other, "until": other}, config)
    with_zone = {"query": "red lake", "since": "2026-11-23T23:00:00Z", "until": "2026-11-23T23:00:00+00:00"}
    assert at_lake(zone) in invoke(tool, with_zone, config)
