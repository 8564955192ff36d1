"""What changes many messages or lines at once is done in steps: Redis serves nobody else while a script runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import redis
from langchain_core.messages import HumanMessage

from langchain_workingmem._text.said import weight_of
from langchain_workingmem.errors import MessageNotFoundError
from langchain_workingmem.observations.hooks import export_log
from tests.helpers.archives import unsealed
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.observations.test_forgetting import BOUND, IDS, check_coverage, observe, observing, raw_ids, talk


def commands_in_scripts(raw: redis.Redis, call: Callable[[], Any]) -> list[int]:
    """Run a call, and count the commands of each of its scripts."""
    counts: list[int] = []
    client: Any = raw
    with client.monitor() as watched:
        call()
        raw.echo("that is all")
        for one in watched.listen():
            if one["client_type"] == "lua":
                counts[-1] += 1
            elif one["command"].startswith("EVAL"):
                counts.append(0)
            elif one["command"].startswith("ECHO"):
                break
    return [one for one in counts if one]  # the others were not loaded yet


def test_no_script_does_all_of_the_work_that_grows(make_memory: Make, raw: redis.Redis) -> None:
    """Redis serves nobody else while a script runs, so the work is cut into scripts of a bounded number of commands."""
    memory = observing(make_memory, batch_tokens=4000, observation_tokens=2000, recall=True)
    talk(memory, 1200)
    observe(memory)
    ids = [f"m{at}" for at in range(0, 1200, 4)]
    changed = [HumanMessage("other", id=id) for id in ids[1::2]]
    calls: dict[str, tuple[int, Callable[[], Any]]] = {
        "clone": (2500, partial(memory.threads.clone, "t", new_thread_id="c", resource_id="u")),
        "clear the log": (900, partial(memory.observations.clear, **IDS)),
        "update": (1300, partial(memory.history.update, changed, **IDS)),
        "delete": (1000, partial(memory.history.delete, ids[::2], **IDS)),
        "clear": (1500, partial(memory.history.clear, **IDS)),
    }
    for how, (most, call) in calls.items():
        counts = commands_in_scripts(raw, call)
        assert max(counts) < most, (how, counts)
        assert sum(counts) > most, (how, counts)  # so one script that did all of it would have more
        if how == "clear the log":
            memory.observations.revert(memory.observations.history(**IDS)[1].revision, **IDS)
        if how == "delete":  # the script that hides the messages leaves their vectors to slices
            hides, *slices = commands_in_scripts(raw, partial(memory.history.truncate, "t", after="m601"))
            assert hides < 300 < sum(slices)


def test_much_is_read_in_parts(make_memory: Make, raw: redis.Redis) -> None:
    """Messages that are not covered are counted, and a log is exported, by scripts that look at a part each."""
    memory = observing(make_memory, batch_tokens=20_000)
    talk(memory, 2100)
    assert memory.observations.get(**IDS).pending_tokens == weight_of(memory.history.messages("t"))
    assert len(commands_in_scripts(raw, partial(memory.observations.get, **IDS))) == 2  # 2,000 in each
    observe(memory)
    log = memory.observations.get(**IDS)
    assert len(log) == 700
    assert len(commands_in_scripts(raw, lambda: memory._core.run(export_log(memory._core.state, "t", "u")))) == 5
    records = unsealed(memory.users.export("u"))
    memory.users.delete("u")
    memory.users.load(records)
    assert [one.text for one in memory.observations.get(**IDS)] == [one.text for one in log]
    check_coverage(memory, raw)


@pytest.mark.both_faces
def test_an_update_of_many_changes_none_if_one_is_missing(make_memory: Make, trips: Trips) -> None:
    memory = observing(make_memory, batch_tokens=4000)
    talk(memory, 100)
    observe(memory)
    changed = [HumanMessage("other", id=f"m{at}") for at in range(100)]
    with pytest.raises(MessageNotFoundError, match="m100"):
        memory.history.update([*changed, HumanMessage("other", id="m100")], **IDS)
    assert not any(one.text == "other" for one in memory.history.messages("t"))
    before = trips.count
    assert memory.history.update(changed, **IDS) == changed
    assert trips.count - before == 6  # one that looks, then 20 in each
    assert [one.text for one in memory.history.messages("t")][:100] == ["other"] * 100
    assert not memory.observations.get(**IDS).observations


def test_a_deletion_of_many_shows_no_more_messages_again_than_that_of_one(make_memory: Make, raw: redis.Redis) -> None:
    memory = observing(make_memory, batch_tokens=4000, together=8)
    talk(memory, 200, words=20)
    observe(memory)
    assert memory.history.delete([f"m{at}" for at in range(0, 200, 4)], **IDS) == 50
    rest = [one for one in memory.history.messages("t") if one.id in raw_ids(memory)]
    assert BOUND / 2 < weight_of(rest) <= BOUND
    check_coverage(memory, raw)


def test_many_messages_are_deleted_in_steps(make_memory: Make, raw: redis.Redis, trips: Trips) -> None:
    memory = observing(make_memory, batch_tokens=4000)
    talk(memory, 700)
    observe(memory)
    before = trips.count
    assert memory.history.delete([f"m{at}" for at in range(50, 660)], **IDS) == 610
    assert trips.count - before == 31  # 20 in each
    check_coverage(memory, raw)
    assert len(memory.history.messages("t")) == 92
