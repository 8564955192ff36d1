"""Invented conversations, and a model under which texts that share words are near; docs/benchmarks.md compares them with real ones."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.embeddings import Embeddings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Weighted = tuple[Sequence[str], Sequence[float]]  # words and the running sums of their weights

TALK = Path(__file__).parent / "talk/en.json"
WHEN = ("yesterday", "last week", "in May", "on 3 June", "in March 2025", "last summer")
WORD = re.compile(r"\w+")
DIMS = 384


@cache
def frequent_words() -> Weighted:
    """Return the 60 most frequent words of the English talk."""
    said = " ".join(message["text"].lower() for message in json.loads(TALK.read_text())["messages"])
    words, numbers = zip(*Counter(WORD.findall(said)).most_common(60), strict=True)
    return words, [*accumulate(numbers)]


@cache
def rare_words() -> Weighted:
    """Invent 5,000 words whose frequencies follow Zipf's law; the more frequent ones are shorter."""
    rng = random.Random(2)
    syllables = [first + second for first in "bcdfghjklmnprstvwz" for second in "aeiou"]
    made = {"".join(rng.choices(syllables, k=rng.choice((2, 2, 3, 3, 4)))) for _ in range(8_000)}
    words = sorted(made, key=lambda word: (len(word), zlib.crc32(word.encode())))[:5_000]
    return words, [*accumulate(1 / (place + 10) for place in range(len(words)))]


class Talk:
    """What a user says and hears: half of the words are frequent in English, a fifth belongs to the topic of the moment."""

    def __init__(self, user: str) -> None:
        rng = random.Random(user)
        self._user, self._names = user, [name.capitalize() for name in rng.choices(rare_words()[0], k=3)]
        self._topics = [drawn(rng, rare_words(), 40) for _ in range(12)]

    def texts(self, place: str, number: int) -> list[str]:
        """Return the same texts for the same place; the topic changes after 20."""
        rng = random.Random(f"{self._user} {place}")
        topics = rng.choices(self._topics, k=number // 20 + 1)
        return [" ".join(self._sentences(rng, topics[at // 20])) for at in range(number)]

    def _sentences(self, rng: random.Random, topic: Sequence[str]) -> Iterator[str]:
        words = [*self._words(rng, topic), *rng.choices(WHEN, k=rng.random() < 0.1)]
        for at in range(0, len(words), 7):
            yield " ".join([words[at].capitalize(), *words[at + 1 : at + 7]]) + "."

    def _words(self, rng: random.Random, topic: Sequence[str]) -> Iterator[str]:
        for _ in range(max(3, round(rng.gammavariate(3.2, 8.3)))):  # 26; of ten texts one has 10 and one has 47
            kind = rng.random()
            if kind < 0.785:
                yield from drawn(rng, frequent_words() if kind < 0.5 else rare_words())
            else:
                yield rng.choice(topic if kind < 0.985 else self._names)

    def question(self, at: int) -> str:
        """Ask for something of a topic, with the name of a person and sometimes with a time."""
        rng = random.Random(f"{self._user} asks {at}")
        told = rng.choices(rng.choice(self._topics), k=rng.choice((1, 2, 2, 4, 6)))
        begins = rng.choice((*["What did"] * 7, "When did"))
        others = [*rng.choices(frequent_words()[0], k=3), *told, *rng.choices(WHEN, k=rng.random() < 0.04)]
        return " ".join([begins, rng.choice(self._names), *others]) + "?"


def drawn(rng: random.Random, words: Weighted, number: int = 1) -> list[str]:
    return rng.choices(words[0], cum_weights=words[1], k=number)


class WordVectors(Embeddings):
    """A text is the sum of its words' directions. What will be asked is prepared, so that the model costs nothing."""

    def __init__(self) -> None:
        self.prepared: dict[str, list[float]] = {}
        self._directions: dict[str, Any] = {}

    def prepare(self, texts: Sequence[str]) -> None:
        self.prepared = {text: self._vector(text) for text in texts}

    def _vector(self, text: str) -> list[float]:
        total = np.sum([self._direction(word) for word in WORD.findall(text.lower())], axis=0)
        return (total / np.linalg.norm(total)).tolist()  # type: ignore[no-any-return]

    def _direction(self, word: str) -> Any:
        if word not in self._directions:
            numbers = np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMS, np.float32)
            self._directions[word] = numbers / (1 if len(word) > 3 else 3)
        return self._directions[word]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.prepared.get(text) or self._vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    async def aembed_query(self, text: str) -> list[float]:
        return self.embed_query(text)  # the inherited one goes through a thread
