"""How much of a question is embedded, and which of its words are looked for."""

from __future__ import annotations

from langchain_workingmem._redis.queries import MAX_QUERY_WORDS, distinct_words


def pasted(lines: int) -> str:
    """Make a log of many words with a question in front of it and one behind."""
    log = "\n".join(f"line{at} of the log" for at in range(lines))
    return f"Why does the gearbox stop?\n{log}\nWhich bearing is it?"


def test_a_question_at_either_end_of_a_long_text_is_looked_for() -> None:
    for lines in (200, 100_000):
        words = distinct_words(pasted(lines))
        assert len(words) == MAX_QUERY_WORDS
        assert {"gearbox", "bearing"} <= set(words)
