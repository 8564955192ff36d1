"""How much of a question is embedded, and which of its words are looked for."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory
from langchain_workingmem._redis.queries import MAX_QUERY_WORDS, distinct_words


def pasted(lines: int) -> str:
    """Make a log of many words with a question in front of it and one behind."""
    log = "\n".join(f"line{at} of the log" for at in range(lines))
    return f"Why does the gearbox stop?\n{log}\nWhich bearing is it?"


@pytest.mark.parametrize("text", ["of the and a cat", "__ ___", "$w0 | (cat) -dog @text:{x} ~ * %"])
def test_no_word_is_syntax_and_stop_words_find_nothing(memory: Memory, text: str) -> None:
    memory.history.append(["a cat of the house"], thread_id="t", user_id="u")
    (hit,) = memory.recall.search(text, user_id="u").hits
    assert hit.score >= 0


def test_a_question_at_either_end_of_a_long_text_is_looked_for() -> None:
    for lines in (200, 100_000):
        words = distinct_words(pasted(lines))
        assert len(words) == MAX_QUERY_WORDS
        assert {"gearbox", "bearing"} <= set(words)
