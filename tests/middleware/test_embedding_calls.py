"""What a turn of an agent asks of the embedding model: each text once, where questions and documents are alike."""

from __future__ import annotations

from typing import Any

from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.models import Bench, Scripted, agent_of, ask


class Alike(WordEmbeddings):
    embeds_alike = True


class Unlike(WordEmbeddings):
    def embed_query(self, text: str) -> list[float]:
        return [-value for value in super().embed_query(text)]


def turns(bench: Bench, embeddings: WordEmbeddings) -> list[list[Any]]:
    """Return the calls of three turns."""
    memory = bench.recalling(embeddings=embeddings)
    memory.setup()
    agent = agent_of(Scripted.says("first answer", "second answer", "third answer"), memory)
    found = []
    for question in ("first question", "second question", "third question"):
        embeddings.calls.clear()
        bench.run(agent, ask(question))
        found.append(list(embeddings.calls))
    return found


def test_a_model_that_embeds_both_alike_is_asked_once(bench: Bench) -> None:
    once = [[[f"{turn} question"], [f"{turn} answer"]] for turn in ("first", "second", "third")]
    assert turns(bench, Alike()) == once


def test_a_model_that_does_so_without_saying_it_shows_it_in_the_first_turn(bench: Bench) -> None:
    first, *later = turns(bench, WordEmbeddings())
    assert first == [["first question"], ["first question"], ["first answer"]]
    assert later == [[[f"{turn} question"], [f"{turn} answer"]] for turn in ("second", "third")]


def test_a_model_that_embeds_questions_otherwise_is_asked_for_both(bench: Bench) -> None:
    both = [[[f"{turn} question"], [f"{turn} question"], [f"{turn} answer"]] for turn in ("first", "second", "third")]
    assert turns(bench, Unlike()) == both
