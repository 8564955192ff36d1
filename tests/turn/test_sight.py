"""What models have been shown: bounded records, safe between threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from langchain_workingmem._redis.state import MOST, Recent, ShownMessages, ShownToModel


def test_nothing_is_known_of_what_nobody_noted() -> None:
    sight = ShownToModel()
    assert (sight.shown_document("t", "k"), sight.document_after_step("t", "k"), sight.shown_messages("t")) == (
        None,
        None,
        None,
    )
    assert sight.shown_messages("t") is None


def test_the_newest_text_counts_for_each_thread_and_memory() -> None:
    sight = ShownToModel()
    for thread, key, text in (("t", "k", "a"), ("u", "k", "b"), ("t", "l", "c"), (None, "k", ""), ("t", "k", "d")):
        sight.note_shown_document(thread, key, text)
    assert [sight.shown_document(*one) for one in (("t", "k"), ("u", "k"), ("t", "l"), (None, "k"))] == [
        "d",
        "b",
        "c",
        "",
    ]


def test_what_a_tool_says_counts_behind_its_step() -> None:
    sight = ShownToModel()
    sight.note_shown_document("t", "k", "prompt")
    sight.note_shown_document("t", "k", "first", 1)
    sight.note_shown_document("t", "k", "second", 1)
    assert (
        sight.shown_document("t", "k", 1),
        sight.document_after_step("t", "k"),
        sight.shown_document("t", "k", 2),
    ) == (
        "prompt",
        "second",
        "second",
    )
    sight.note_shown_document("t", "k", "third", 2)
    assert (sight.shown_document("t", "k", 2), sight.shown_document("t", "k", 3), sight.shown_document("t", "k")) == (
        "second",
        "third",
        "third",
    )
    sight.note_shown_document("t", "k", "new prompt")
    assert (sight.shown_document("t", "k", 3), sight.document_after_step("t", "k")) == ("new prompt", "new prompt")


def test_messages_in_sight_are_replaced_and_forgotten() -> None:
    sight = ShownToModel()
    sight.note_shown_messages("t", ["a", None, "", "\ud800", "b"], " why?\n", "ann")
    assert sight.shown_messages("t") == ShownMessages(frozenset("ab"), "why?", "ann")
    sight.note_shown_messages("t", ["d"], "", "ann")
    assert sight.shown_messages("t") == ShownMessages(frozenset("d"), "", "ann")
    sight.forget_shown_messages("t")
    sight.forget_shown_messages("nowhere")
    assert sight.shown_messages("t") is None


def test_only_the_records_that_were_used_last_are_kept() -> None:
    sight = ShownToModel()
    for at in range(MOST):
        sight.note_shown_messages(f"t{at}", [], "", "ann")
        sight.note_shown_document(f"t{at}", "k", "")
    assert sight.shown_messages("t0") is not None
    assert sight.shown_document("t0", "k") == ""
    sight.note_shown_messages("new", [], "", "ann")
    sight.note_shown_document("new", "k", "")
    assert (sight.shown_messages("t1"), sight.shown_document("t1", "k")) == (None, None)
    assert sight.shown_messages("t0") is not None
    assert sight.shown_document("t0", "k") == ""


def test_many_threads_lose_nothing() -> None:
    recent: Recent[str | int, int] = Recent(10)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: recent.change("a", lambda before: (before or 0) + 1), range(2000)))
        list(pool.map(lambda at: recent.change(at, lambda _: at), range(2000)))
    assert len(recent) == 10
    recent.change("a", lambda before: before)
    assert recent.get("a") is None
