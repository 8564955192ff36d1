"""Two users of one program, each in a zone: what their models are shown, on nights when clocks change, and what they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, message_to_dict

from langchain_workingmem import Ids, Memory, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.importers import header
from tests.faces.nodes_samples import Recording, chat, say
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured, remembered
from tests.helpers.nights import DAYS, Day
from tests.helpers.trips import Trips
from tests.helpers.types import Make

HERE, LONDON = "maya", "jonas"  # in the zone of the test, and of UTC
WORDS = ("I live in Alba", "I work as a baker", "I bake bread", "I paint a door")
QUESTION = "Where have we walked yesterday?"


def records(thread: str, owner: str, times: Iterable[datetime], words: Sequence[str] = WORDS) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [header(owner), {"kind": "thread", "id": thread}]
    for at, text in zip(times, words, strict=True):
        for second, message in enumerate((HumanMessage(text, id=text), AIMessage("I see.", id=f"answer to {text}"))):
            stored_at = (at + timedelta(seconds=second)).isoformat()
            said = {"thread_id": thread, "stored_at": stored_at, "message": message_to_dict(message)}
            lines.append({"kind": "message", **said})
    return lines


def walks(day: Day) -> list[tuple[str, datetime]]:
    """Two walks, of which one was on the day."""
    return [("mill to lake", day.since - timedelta(hours=13)), ("lake to mill", day.since + timedelta(hours=9))]


def living(make: Make, day: Day) -> Memory:
    """A program whose users said the same at the same moments: around the midnights of the day."""

    def zone_of(ids: Ids) -> str:
        return day.zone.key if ids.user_id == HERE else "UTC"

    memory = make(
        embeddings=WordEmbeddings(),
        recall=RecallOptions(top_k=1, message_range=0),
        timezone=zone_of,
    )
    moments = (day.since - timedelta(minutes=1), day.since, day.last, day.until)
    for owner in (HERE, LONDON):
        memory.users.load(records(f"diary-{owner}", owner, moments))
        places, times = zip(*walks(day), strict=True)
        words = [f"We walked from {place}." for place in places]
        memory.users.load(records(f"walks-{owner}", owner, times, words))
    return memory


@DAYS
def test_what_is_recalled_has_the_times_and_days_of_its_user(make_memory: Make, day: Day) -> None:
    memory = living(make_memory, day)
    model, now = Recording(), day.until + timedelta(hours=1)
    graph = chat(memory, model, now=now)
    for owner, zone in ((HERE, day.zone), (LONDON, UTC)):
        graph.invoke(say(QUESTION), configured(f"diary-{owner}", owner, memory={"persist": False}))
        shown, name = model.seen[-1], "UTC" if zone is UTC else day.zone.key
        front = remembered(shown)

        def local(at: datetime, zone: Any = zone) -> datetime:
            return at.astimezone(zone)

        # of maya yesterday, from her midnight to her midnight
        times = {place: f"{local(at):%Y-%m-%d %H:%M} {name}" for place, at in walks(day)}
        ((time, place),) = re.findall(r'time="([^"]*)">We walked from (\w+ to \w+)', front)
        assert time == times[place]
        assert owner == LONDON or place == "lake to mill"


@DAYS
def test_a_model_that_names_a_day_gets_that_of_its_user(bench: Bench, day: Day) -> None:
    """The zone comes with the call. The day has all of its hours, also those that come twice."""
    memory = bench.recalling(timezone="Europe/London")
    moments = [day.since - timedelta(minutes=1), *hours(day), day.until]
    names = [f"I walked to hut {number}" for number in range(len(moments))]
    memory.users.load(records("walks", HERE, moments, names))
    own = f"{day.since.astimezone(day.zone):%Y-%m-%d}"
    search = calling(("search_memory", {"query": "walked to hut", "since": own, "until": own}), id="c")
    model = Scripted.says(search, "Here they are.")
    bench.run(agent_of(model, memory), ask("Where was I?"), configured("t", HERE, memory={"timezone": day.zone.key}))
    found = re.findall(r'time="([^"]*)">I walked to hut', str(model.seen[-1][-1].text))
    assert {one[:10] for one in found} == {own}
    assert {one[17:] for one in found} == {day.zone.key}
    everything = memory.recall.search(
        "walked to hut", user_id=HERE, top_k=99, since=day.since, until=day.until - timedelta(microseconds=1)
    )
    assert len({hit.message.id for hit in everything if str(hit.message.text) != "I see."}) == len(moments) - 2


def hours(day: Day) -> list[datetime]:
    """Return half past each hour of a day: 23, 24 or 25 times."""
    count = (day.until - day.since) // timedelta(hours=1)
    return [day.since + timedelta(hours=number, minutes=30) for number in range(count)]


def test_a_zone_costs_no_round_trip(make_memory: Make, trips: Trips) -> None:
    def cost(zone: Any) -> int:
        memory = make_memory(working_memory=WorkingMemoryOptions(), timezone=zone)
        return trips.of(lambda: memory.context(QUESTION, thread_id="t", user_id=HERE))

    assert [cost(zone) for zone in ("UTC", "Asia/Kathmandu", lambda _: "Asia/Kathmandu")] == [1, 1, 1]
