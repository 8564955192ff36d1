"""How an import is written: in steps, behind what is there, from a file that is gone at the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem._engine.plan import Command
from langchain_workingmem._redis.scripts import WRITE
from langchain_workingmem.threads import copies
from tests.users.samples import HEADER, MEMORY, THREAD, message

pytestmark = pytest.mark.in_turn("face")

Make = Callable[..., Memory]


@pytest.mark.parametrize("at", ["2249-12-31T23:59:59.999999Z", "1970-01-01T00:00:00.000001Z"])
def test_what_is_behind_the_last_time_that_is_taken_still_rises(plain: Memory, at: str) -> None:
    plain.users.load([HEADER, THREAD, message("a", stored_at=at), message("b", stored_at=at)])
    for id in "cd":
        plain.history.append([HumanMessage("x", id=id)], thread_id="t", user_id="u")
    times = [row.stored_at for row in plain.history.page("t")]
    assert times == sorted(set(times))
    assert len(times) == 4


def test_revisions_are_counted_on_from_the_highest(make_memory: Make) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template=""))
    highest = {**MEMORY, "revision": 2**48}
    memory.users.load([HEADER, {**highest, "revisions": [highest]}])
    for number in (1, 2):
        assert memory.working_memory.update(f"{number}", user_id="u", mode="replace").revision == 2**48 + number


def test_messages_that_are_too_large_for_one_step_are_written_in_several(
    plain: Memory, commands: list[Command], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "STEP_BYTES", 10_000)
    bodies = [
        message(message={"type": "human", "data": {"content": "x" * 3000, "id": f"{number}"}}) for number in range(9)
    ]
    assert plain.users.load([HEADER, THREAD, *bodies]).messages == 9
    sizes = [
        sum(len(one) for one in command if isinstance(one, str | bytes))
        for command in commands
        if command[1:2] == (WRITE.sha,)
    ]
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
