"""How an import is written: in steps, behind what is there, from a file that is gone at the end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem._engine.plan import Command
from langchain_workingmem._redis.scripts import WRITE
from langchain_workingmem.threads import copies
from tests.users.samples import HEADER, THREAD, message

pytestmark = pytest.mark.in_turn("face")


def test_messages_behind_newer_ones_take_a_time_behind_them(plain: Memory) -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    first, second = (f"{at + timedelta(seconds=place):%Y-%m-%dT%H:%M:%S+00:00}" for place in (9, 5))
    plain.users.load([HEADER, THREAD, message("1", stored_at=first), message("2", stored_at=second)])
    times = [row.stored_at for row in plain.history.page("t").items]
    assert times == [at + timedelta(seconds=9), at + timedelta(seconds=9, microseconds=1)]


def test_messages_that_are_too_large_for_one_step_are_written_in_several(
    plain: Memory, commands: list[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "STEP_BYTES", 10_000)
    bodies = [
        message(message={"type": "human", "data": {"content": "x" * 3000, "id": f"{number}"}}) for number in range(9)
    ]
    assert plain.users.load([HEADER, THREAD, *bodies]).messages == 9
    writes = [command for command in commands if command[1:2] == (WRITE.sha,)]
    sizes = [sum(len(one) for one in write if isinstance(one, str | bytes)) for write in writes]
    assert len(sizes) == 3
    assert max(sizes) < 11_000


def test_a_mark_that_somebody_has_written_into_an_archive_counts_for_nothing(plain: Memory) -> None:
    marks = {"langchain_workingmem": {"content": "FORBIDDEN", "mac": "0" * 32}, "lc_source": "summarization", "own": 1}
    given = {"type": "human", "data": {"content": "harmless", "id": "m", "additional_kwargs": marks}}
    assert plain.users.load([HEADER, THREAD, message(message=given)]).messages == 1
    (stored,) = plain.history.messages("t")
    assert (stored.content, stored.additional_kwargs) == ("harmless", {"own": 1})
    (_, shown) = plain.context("and?", thread_id="t", user_id="u").messages[:2]
    assert "FORBIDDEN" not in str(shown.content)


def test_an_import_adds_what_is_missing_and_changes_nothing_else(plain: Memory) -> None:
    records = [HEADER, {**THREAD, "title": "of the archive", "deleted": ["d"]}, *(message(id) for id in "abc")]
    plain.users.load(records)
    plain.history.delete(["b"], thread_id="t")
    plain.history.update([HumanMessage("changed", id="c")], thread_id="t")
    plain.threads.update("t", title="mine")
    before = plain.threads.get("t"), plain.history.page("t").items
    report = plain.users.load(records)
    assert (report.threads, report.messages, report.skipped) == (0, 0, 3)
    assert (plain.threads.get("t"), plain.history.page("t").items) == before
    report = plain.users.load([*records, message("e"), message("d"), message("e")])
    assert (report.messages, report.skipped) == (1, 5)
    assert [one.id for one in plain.history.messages("t")] == ["a", "c", "e"]
