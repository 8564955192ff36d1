"""Single rules of rows: what replaces what, and what reading and deleting cost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory
from langchain_workingmem.derived import NewRow, Ranges, ThreadRows, export_rows, restore_rows
from tests.helpers.plans import meanwhile, twice
from tests.helpers.threads import append, said
from tests.helpers.types import Make


def write(memory: Memory, rows: list[NewRow], **more: Any) -> list[int] | None:
    state = memory._core.state
    read = memory._core.run(ThreadRows(state, "t", "u", "log").read())
    return memory._core.run(ThreadRows(state, "t", "u", "log").commit(read, rows, **more))


def shown(memory: Memory) -> list[str]:
    read = memory._core.run(ThreadRows(memory._core.state, "t", "u", "log").read())
    return [row["text"] for _, row in sorted(read.rows.items())]


def seqs_of(memory: Memory) -> list[int]:
    return [row.seq * 4096 for row in memory.history.page("t", limit=10_000).items]


def body(text: str) -> dict[str, Any]:
    return {"text": text, "at": 1}


@pytest.fixture
def told(plain: Memory) -> list[int]:
    """A thread of six questions, and their seqs."""
    append(plain, *"abcdef")
    return seqs_of(plain)


def about(text: str, seqs: list[int], covers: list[int] | None = None, **more: Any) -> NewRow:
    return NewRow(body(text), seqs, seqs if covers is None else covers, **more)


def test_a_commit_knows_its_rows_again_if_their_reply_was_lost_but_not_those_of_another(
    plain: Memory, told: list[int]
) -> None:
    rows = ThreadRows(plain._core.state, "t", "u", "log")
    read = plain._core.run(rows.read())
    new = [about("first", told[:2]), about("second", told[2:4])]
    assert plain._core.run(twice(rows.commit(read, new))) == [1, 2]
    assert plain._core.run(twice(rows.commit(read, new))) == []
    assert plain._core.run(twice(rows.commit(read, [about("other", told[:2])]))) == []
    assert shown(plain) == ["first", "second"]


def test_a_restored_row_that_is_refused_keeps_no_other_out(plain: Memory, told: list[int]) -> None:
    """An archive may hold rows of one message that nobody can see together, in front, too."""
    ids = [str(one.id) for one in plain.history.messages("t")]
    row = {"row": "log", "replaces": [], "waits": False}
    rows = [
        {**row, "id": at, "cites": [id], "covers": covers, "body": body(id)}
        for at, (id, covers) in enumerate([(ids[0], []), (ids[1], [ids[1]]), (ids[1], [ids[1]]), (ids[2], [ids[2]])], 1)
    ]
    nothing = {**row, "id": 9, "cites": [], "covers": [], "body": body("of nothing")}
    assert plain._core.run(restore_rows(plain._core.state, "t", "u", [nothing, *rows])) == 3
    assert shown(plain) == ids[:3]


def test_a_reader_that_knows_the_log_fetches_next_to_nothing(plain: Memory, told: list[int], raw: redis.Redis) -> None:
    write(plain, [about(f"a line of some length about {at}", [seq]) for at, seq in enumerate(told)])
    assert len(shown(plain)) == 6
    state, client = plain._core.state, cast("Any", raw)
    head, bodies = client.execute_command(*ThreadRows(state, "t", "u", "log").show())
    assert len(head) + sum(map(len, bodies)) < 200
    known = ThreadRows(state, "t", "u", "log").show().known
    plain.history.append(said("g"), thread_id="t", user_id="u")
    write(plain, [about("one more", seqs_of(plain)[6:])])
    head, bodies = client.execute_command(*ThreadRows(state, "t", "u", "log").show())
    assert len(bodies) == 1  # only what is new
    assert shown(plain)[-1] == "one more"
    assert known.rows.items() <= ThreadRows(state, "t", "u", "log").show().known.rows.items()


def test_a_message_is_read_again_although_ranges_around_it_have_gaps(plain: Memory, told: list[int]) -> None:
    write(plain, [NewRow(body("read"), covers=told[:3])])
    write(plain, [about("a value", told[:2], [])])
    plain.history.delete([str(plain.history.messages("t")[1].id)], thread_id="t")
    assert write(plain, [about("again", [told[0], told[4]])]) == [3]
    assert Ranges.joined([(1, 9), (2, 3)]).pairs == ((1, 9),)


def test_a_row_about_older_words_of_an_id_stays_behind(plain: Memory) -> None:
    ids: Any = {"thread_id": "t", "user_id": "u"}
    plain.save_turn(
        [HumanMessage("hi", id="h"), AIMessage("yes"), HumanMessage("my dog", id="q"), AIMessage("a")], **ids
    )
    seqs = seqs_of(plain)
    write(plain, [about("cites the dog", seqs[2:3], []), about("covers the dog", seqs[:1], seqs[2:3])])
    first = plain.history.messages("t")[:2]
    plain.save_turn([*first, HumanMessage("my cat", id="q"), AIMessage("b")], **ids)
    assert plain._core.run(export_rows(plain._core.state, "t", "u")) == []


def test_a_row_of_a_thread_that_was_loaded_again_meanwhile_is_refused(plain: Memory, told: list[int]) -> None:
    rows, records = ThreadRows(plain._core.state, "t", "u", "log"), [*plain.users.export("u")]
    for _ in range(2):
        read = plain._core.run(rows.read())
        plain.threads.delete("t")
        plain.users.load(records)
    assert plain._core.run(rows.commit(read, [about("a secret", told[:1])])) is None


def delete(memory: Memory, number: int) -> None:
    memory.history.delete([str(memory.history.messages("t")[number].id)], thread_id="t")


def test_a_row_that_waits_hides_what_it_replaces_and_one_that_cites_another_goes_with_its_source(
    plain: Memory, told: list[int]
) -> None:
    write(plain, [about("a", told[:1])])
    write(plain, [about("b", told[1:2], cited_rows=[1])])
    write(plain, [NewRow(body("c"), replaces=[1], waits=True)])
    assert shown(plain) == ["b"]
    delete(plain, 0)
    assert shown(plain) == []


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_commit_meets_a_deletion_or_another_commit(plain: Memory, told: list[int], *, is_deleted: bool) -> None:
    rows, effects = ThreadRows(plain._core.state, "t", "u", "log"), list[object]()
    read = plain._core.run(rows.read())

    def event(effect: object) -> None:
        effects.append(effect)
        if len(effects) == 2 and is_deleted:
            delete(plain, 0)
        elif len(effects) == 2:
            write(plain, [about("first", told[:1])])

    done = plain._core.run(meanwhile(rows.commit(read, [about("x", told[1:2])]), event))
    assert (done, shown(plain)) == ((None, []) if is_deleted else ([2], ["first", "x"]))


def test_rows_on_two_branches_never_cover_a_message_twice(plain: Memory) -> None:
    ids: Any = {"thread_id": "t", "user_id": "u"}
    first, second, third = ([HumanMessage(f"q{at}", id=f"q{at}"), AIMessage(f"a{at}", id=f"a{at}")] for at in range(3))
    plain.save_turn([*first, *second], **ids)
    write(plain, [about("one", seqs_of(plain)[:2]), about("two", seqs_of(plain)[2:])])
    write(plain, [NewRow(body("both"), replaces=[1, 2])])
    plain.save_turn([*first, *third], **ids)
    write(plain, [NewRow(body("shorter"), replaces=[1])])
    plain.save_turn([*first, *second, HumanMessage("q3", id="q3"), AIMessage("a3", id="a3")], **ids)
    assert sorted(shown(plain)) == ["shorter", "two"]


def test_rows_that_were_replaced_come_back_with_those_that_replaced_them(
    plain: Memory, told: list[int], raw: redis.Redis
) -> None:
    write(plain, [about("one", told[:1]), about("two", told[1:2])])
    write(plain, [NewRow(body("both"), replaces=[1, 2])])
    rows = plain._core.run(export_rows(plain._core.state, "t", "u"))
    raw.delete(plain._core.state.keys.of("t").rows)
    assert plain._core.run(restore_rows(plain._core.state, "t", "u", rows)) == 3
    delete(plain, 0)
    assert shown(plain) == ["two"]


def test_rows_expire_with_their_thread(make_memory: Make, raw: redis.Redis) -> None:
    memory = make_memory(ttl=timedelta(hours=1))
    append(memory, "a")
    write(memory, [about("one", seqs_of(memory))])
    keys = memory._core.state.keys.of("t")
    assert raw.pexpiretime(keys.rows) == raw.pexpiretime(keys.thread) > 0
