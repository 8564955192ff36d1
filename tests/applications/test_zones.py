"""What a model asks for by a day of its user, on nights when clocks change."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from langchain_core.messages import HumanMessage, message_to_dict

from langchain_workingmem import RecallOptions
from langchain_workingmem.importers import header
from tests.helpers.models import Bench, Scripted, agent_of, ask, calling, configured
from tests.helpers.nights import DAYS, Day


@DAYS
def test_a_model_that_names_a_day_gets_that_of_its_user(bench: Bench, day: Day) -> None:
    """The zone comes with the call. The day has all of its hours, also those that come twice."""
    memory = bench.recalling(recall=RecallOptions(top_k=30, message_range=0), timezone="Europe/London")
    count = (day.until - day.since) // timedelta(hours=1)  # 23, 24 or 25
    hours = [day.since + timedelta(hours=number, minutes=30) for number in range(count)]
    moments = [day.since - timedelta(minutes=1), *hours, day.until]
    said = [message_to_dict(HumanMessage(f"I walked to hut {at}", id=f"m{at}")) for at in range(len(moments))]
    lines: list[dict[str, Any]] = [
        {"kind": "message", "thread_id": "walks", "stored_at": at.isoformat(), "message": one}
        for at, one in zip(moments, said, strict=True)
    ]
    memory.users.load([header("maya"), {"kind": "thread", "id": "walks"}, *lines])
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
