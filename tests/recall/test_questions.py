"""How much of a question is embedded, and which of its words are looked for."""

from __future__ import annotations

from typing import Any

import pytest
from langgraph.store.base import SearchOp

from langchain_workingmem import Memory
from langchain_workingmem._engine.calls import Embedder
from langchain_workingmem._engine.plan import Call
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS, MAX_QUERY_WORDS, distinct_words
from langchain_workingmem._redis.state import MemoryState
from langchain_workingmem.items import StoreState, Vectors
from langchain_workingmem.items import search as search_items
from langchain_workingmem.options import IndexOptions, RecallOptions
from langchain_workingmem.recall.question import Query
from langchain_workingmem.recall.search import search_messages
from tests.helpers.embeddings import WordEmbeddings


def pasted(lines: int) -> str:
    """Make a log of many words with a question in front of it and one behind."""
    log = "\n".join(f"line{at} of the log" for at in range(lines))
    return f"Why does the gearbox stop?\n{log}\nWhich bearing is it?"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("What is Nougat's age?", ["what", "is", "nougat", "s", "age"]),
        ("snake_case _private __init__", ["snake_case", "_private", "__init__"]),
        ("again, and again", ["again", "and"]),
        ("漢字 Grüße", ["漢字", "grusse"]),
        ("我的狗叫Nougat。", ["我的", "的狗", "狗叫", "nougat"]),
        ("कुत्ते का", ["कुत्ते", "का"]),
    ],
)
def test_words_are_looked_for_once_and_in_lower_case(text: str, words: list[str]) -> None:
    assert distinct_words(text) == words


@pytest.mark.parametrize("text", ["the of", "of the and a cat", "_", "__ ___", "$w0 | (cat) -dog @text:{x} ~ * %"])
def test_no_word_is_syntax_and_stop_words_find_nothing(memory: Memory, text: str) -> None:
    memory.history.append(["a cat of the house"], thread_id="t", user_id="u")
    (hit,) = memory.recall.search(text, user_id="u").hits
    assert hit.score >= 0


def test_a_question_at_either_end_of_a_long_text_is_looked_for() -> None:
    for lines in (200, 100_000):
        words = distinct_words(pasted(lines))
        assert len(words) == MAX_QUERY_WORDS
        assert {"gearbox", "bearing"} <= set(words)


def embedded(plan: Any, model: WordEmbeddings) -> str:
    """Run a plan up to the call of the model, and say what that is given."""
    effect = next(plan)
    plan.close()
    assert isinstance(effect, Call)
    effect.call()
    return model.calls[-1][-1]


@pytest.mark.parametrize("kind", ["recall", "store"])
def test_of_a_long_question_beginning_and_end_are_embedded(kind: str) -> None:
    question, model = pasted(100_000), WordEmbeddings()
    if kind == "recall":
        options = RecallOptions(index=IndexOptions())
        text = embedded(
            search_messages(
                MemoryState(keys=Keys(), embedder=Embedder(model), recall=options),
                Query.of(options, question, user_id="u"),
            ),
            model,
        )
    else:
        shelf = StoreState(Keys(), Embedder(model), Vectors(dims=2), is_ready=True, dims=2)
        text = embedded(search_items(shelf, SearchOp(("a",), query=question)), model)
    assert len(text) <= MAX_QUERY_CHARACTERS
    assert text.startswith("Why does the gearbox stop?\nline0 of the log")
    assert text.endswith("of the log\nWhich bearing is it?")
