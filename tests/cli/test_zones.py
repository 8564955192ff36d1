"""The zone of a terminal: in what is shown, what is meant by times, what models are given; JSON stays UTC."""

from __future__ import annotations

import json
import os
import re
import sys
from datetime import datetime
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from langchain_core.messages import HumanMessage, message_to_dict

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.cli.base import zone_here
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.importers import header
from langchain_workingmem.recall.times import named_times
from tests.cli.conftest import Run
from tests.helpers.observers import Echo
from tests.keeping.shown_samples import keep, options, say

FAR, ANGELES = "Pacific/Kiritimati", "America/Los_Angeles"


@pytest.fixture
def walks(outside: Memory) -> Memory:
    """What Maya says in the hour that comes twice in Los Angeles, and an hour before it."""
    times = [f"2026-11-01T0{hour}:30:00Z" for hour in (7, 8, 9)]
    said = [
        {"kind": "message", "thread_id": "walks", "stored_at": at, "message": message_to_dict(HumanMessage(at, id=at))}
        for at in times
    ]
    outside.users.load([header("maya"), {"kind": "thread", "id": "walks", "title": "Walks"}, *said])
    return outside


def test_times_are_those_of_the_machine_or_of_the_option(run: Run, walks: Memory) -> None:
    thread = walks.threads.get("walks")
    assert thread
    for zone in (FAR, ANGELES, "UTC"):
        time = f"{thread.updated_at.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M}"
        for found in (run("threads", TZ=zone), run("threads", "--timezone", zone, TZ="Asia/Tokyo")):
            assert f"updated ({zone})" in found.stdout
            assert f" {time} " in found.stdout
    times = re.findall(r"(\d\d:\d\d)  user", run("show", "walks", TZ=ANGELES).stdout)
    assert times == ["00:30", "01:30", "01:30"]
    found = json.loads(run("show", "walks", "--format=json", TZ=ANGELES).stdout)
    assert found["thread"]["updated_at"] == thread.updated_at.isoformat()


@pytest.mark.parametrize(
    ("words", "hours"),
    [
        (("--since", "2026-11-01T01:30:00"), [8, 9]),
        (("--until", "2026-11-01T01:30:00"), [7, 8, 9]),  # it comes twice: to the last one
        (("--until", "2026-11-01"), [7, 8, 9]),
        (("--until", "2026-10-31"), []),
        (("--since", "2026-11-01", "--until", "2026-11-01T00:59:59"), [7]),
    ],
)
def test_times_that_are_written_are_in_the_zone(
    run: Run, walks: Memory, words: tuple[str, ...], hours: list[int]
) -> None:
    rows = json.loads(run("show", "walks", "--format=json", *words, TZ=ANGELES).stdout)["messages"]["items"]
    assert [int(row["stored_at"][11:13]) for row in rows] == hours


def test_yesterday_is_that_of_the_terminal(run: Run, walks: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noting(question: str, now: datetime) -> Any:
        asked.append(str(now.tzinfo))
        return named_times(question, now)

    monkeypatch.setattr("langchain_workingmem.recall.operations.named_times", noting)
    for zone in (FAR, ANGELES):
        assert run("recall", "Where did we walk yesterday?", "--resource", "maya", TZ=zone).exit_code == 0
    assert asked == [FAR, ANGELES]


def test_values_and_revisions_have_the_zone_in_their_heads(run: Run, server: EmbeddedRedis, prefix: str) -> None:
    with Memory(server.url, key_prefix=prefix, working_memory=options()) as memory:
        say(memory, (1, "I live in Bern"))
        keep(memory, "/city", "Bern", 1)
    who = ("--resource", "ann", "--timezone", FAR)
    for words, head, time in (
        (("sources",), f"since ({FAR})", "2026-03-02 02:00"),
        (("history", "/city"), f"until ({FAR})", "2026-03-02 02:00"),
        (("history",), f"written ({FAR})", f"{datetime.now(ZoneInfo(FAR)):%Y-%m-%d}"),
    ):
        shown = run("working-memory", *words, *who).stdout
        assert head in shown
        assert time in shown
        assert "UTC" not in shown


def test_a_name_that_is_no_zone_is_refused(run: Run, walks: Memory) -> None:
    found = run("threads", "--timezone", "Mars")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "--timezone is 'Mars': use an IANA name" in found.stderr


@pytest.mark.parametrize("given", [None, "Asia/Kathmandu"])
def test_a_program_has_its_zone_unless_the_option_names_one(
    run: Run, server: EmbeddedRedis, prefix: str, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    model, program = Echo(), ModuleType("program_of_walks")
    observing = ObservationOptions(model=model, keep_tokens=0, background=False)
    memory = Memory(server.url, key_prefix=prefix, timezone="Asia/Tokyo", observations=observing)
    vars(program)["memory"] = memory
    monkeypatch.setitem(sys.modules, program.__name__, program)
    words = () if given is None else ("--timezone", given)
    memory.save_turn([("user", "Hello"), ("assistant", "Hi")], thread_id="t", resource_id="maya")
    assert run("observe", "t", "--memory", "program_of_walks:memory", *words, TZ=FAR).exit_code == 0
    assert memory._core.state.timezone == (given or "Asia/Tokyo")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        (":Europe/Berlin", "Europe/Berlin"),
        ("CET-1CEST", "UTC"),
        ("Etc/UTC", "UTC"),
        ("", "America/Lima"),
    ],
)
def test_the_zone_of_the_machine(monkeypatch: pytest.MonkeyPatch, name: str, expected: str) -> None:
    monkeypatch.setenv("TZ", name)
    monkeypatch.setattr(os.path, "realpath", lambda _: "/usr/share/zoneinfo/posix/America/Lima")
    assert zone_here() == expected


def test_without_a_name_the_machine_has_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)
    monkeypatch.setattr(os.path, "realpath", lambda path: path)  # a copy instead of a link
    assert zone_here() == "UTC"
