"""What a model asks for by a day of its user, on nights when clocks change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from langchain_core.messages import HumanMessage, message_to_dict

from langchain_workingmem import RecallOptions
from langchain_workingmem.importers import header
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured
from tests.helpers.nights import DAYS, Day


def records(owner: str, times: Iterable[datetime], words: Sequence[str]) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [header(owner), {"kind": "thread", "id": "walks"}]
    for at, text in zip(times, words, strict=True):
        said = {
            "thread_id": "walks",
            "stored_at": at.isoformat(),
            "message": message_to_dict(HumanMessage(text, id=text)),
        }
        lines.append({"kind": "message", **said})
    return lines


@DAYS
def test_a_model_that_names_a_day_gets_that_of_its_user(bench: Bench, day: Day) -> None:
    """The zone comes with the call. The day has all of its hours, also those that come twice."""
    memory = bench.recalling(recall=RecallOptions(top_k=30, message_range=0), timezone="Europe/London")
    moments = [day.since - timedelta(minutes=1), *hours(day), day.until]
    names = [f"I walked to hut {number}" for number in range(len(moments))]
    memory.users.load(records("maya", moments, names))
    own = f"{day.since.astimezone(day.zone):%Y-%m-%d}"
    search = calling(("search_memory", {"query": "walked to hut", "since": own, "until": own}), id="c")
    model = Scripted.says(search, "Here they are.")
    bench.run(agent_of(model, memory), ask("Where was I?"), configured("t", "maya", memory={"timezone": day.zone.key}))
    found = re.findall(r'time="([^"]*)">I walked to hut', str(model.seen[-1][-1].text))
    assert len(found) == len(moments) - 2
    assert {one[:10] for one in found} == {own}
    assert {one[17:] for one in found} == {day.zone.key}
    everything = memory.recall.search(
        "walked to hut", user_id="maya", top_k=99, since=day.since, until=day.until - timedelta(microseconds=1)
    )
    assert len({hit.message.id for hit in everything}) == len(moments) - 2


def hours(day: Day) -> list[datetime]:
    """Return half past each hour of a day: 23, 24 or 25 times."""
    count = (day.until - day.since) // timedelta(hours=1)
    return [day.since + timedelta(hours=number, minutes=30) for number in range(count)]
