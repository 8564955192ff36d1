"""What models have been shown: bounded records, safe between threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from langchain_workingmem._redis.recent import MOST, Recent
from langchain_workingmem._redis.sight import InSight, Sight


def test_nothing_is_known_of_what_nobody_noted() -> None:
    sight = Sight()
    assert (sight.shown("t", "k"), sight.learnt("t", "k"), sight.in_sight("t")) == (None, None, None)
    sight.add_in_sight("t", ["m"])
    assert sight.in_sight("t") is None


def test_the_newest_text_counts_for_each_thread_and_memory() -> None:
    sight = Sight()
    for thread, key, text in (("t", "k", "a"), ("u", "k", "b"), ("t", "l", "c"), (None, "k", ""), ("t", "k", "d")):
        sight.note_shown(thread, key, text)
    assert [sight.shown(*one) for one in (("t", "k"), ("u", "k"), ("t", "l"), (None, "k"))] == ["d", "b", "c", ""]


def test_what_a_tool_says_counts_behind_its_step() -> None:
    sight = Sight()
    sight.note_shown("t", "k", "prompt")
    sight.note_shown("t", "k", "first", 1)
    sight.note_shown("t", "k", "second", 1)
    assert (sight.shown("t", "k", 1), sight.learnt("t", "k"), sight.shown("t", "k", 2)) == (
        "prompt",
        "second",
        "second",
    )
    sight.note_shown("t", "k", "third", 2)
    assert (sight.shown("t", "k", 2), sight.shown("t", "k", 3), sight.shown("t", "k")) == ("second", "third", "third")
    sight.note_shown("t", "k", "new prompt")
    assert (sight.shown("t", "k", 3), sight.learnt("t", "k")) == ("new prompt", "new prompt")


def test_messages_in_sight_are_replaced_added_and_forgotten() -> None:
    sight = Sight()
    sight.note_in_sight("t", ["a", None, "", "\ud800", "b"], " why?\n")
    assert sight.in_sight("t") == InSight(frozenset("ab"), "why?")
    sight.add_in_sight("t", ["c"])
    assert sight.in_sight("t") == InSight(frozenset("abc"), "why?")
    sight.note_in_sight("t", ["d"], "")
    assert sight.in_sight("t") == InSight(frozenset("d"), "")
    sight.turn_is_over("t")
    sight.turn_is_over("nowhere")
    assert sight.in_sight("t") is None


def test_only_the_records_that_were_used_last_are_kept() -> None:
    sight = Sight()
    for at in range(MOST):
        sight.note_in_sight(f"t{at}", [], "")
        sight.note_shown(f"t{at}", "k", "")
    assert sight.in_sight("t0") is not None
    assert sight.shown("t0", "k") == ""
    sight.note_in_sight("new", [], "")
    sight.note_shown("new", "k", "")
    assert (sight.in_sight("t1"), sight.shown("t1", "k")) == (None, None)
    assert sight.in_sight("t0") is not None
    assert sight.shown("t0", "k") == ""


def test_many_threads_lose_nothing() -> None:
    recent: Recent[str | int, int] = Recent(10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: recent.change("a", lambda before: (before or 0) + 1), range(2000)))
        list(pool.map(lambda at: recent.change(at, lambda _: at), range(2000)))
    assert len(recent) == 10
    recent.change("a", lambda before: before)
    assert recent.get("a") is None
