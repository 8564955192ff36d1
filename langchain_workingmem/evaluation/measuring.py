"""Measures variants of recall on a data set: stores what is known at each question, and asks it."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_workingmem.errors import EmbeddingError
from langchain_workingmem.evaluation.figures import Measured
from langchain_workingmem.memory import Memory
from langchain_workingmem.users import header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langchain_core.embeddings import Embeddings
    from langchain_core.messages import BaseMessage

    from langchain_workingmem.evaluation.datasets import DataSet, Key, Question, Resource
    from langchain_workingmem.evaluation.figures import Array
    from langchain_workingmem.evaluation.variants import StoredAs, Variant
    from langchain_workingmem.models import RecallHit, RecallResult


class Bench:
    """One data set on one server. Variants that store messages alike share them."""

    def __init__(
        self,
        url: str,
        data: DataSet,
        variants: Sequence[Variant],
        *,
        model_of: Callable[[str], Embeddings],
        key_prefix: str,
        limit: int | None = None,
    ) -> None:
        """Take about `limit` questions, evenly from each resource; None: all."""
        self.variants = variants
        self._work = [(resource, _picked(resource, limit, len(data.resources))) for resource in data.resources]
        self._keepers: dict[StoredAs, Memory] = {}  # which store the messages
        self._stored: dict[str, int] = defaultdict(int)  # resource -> messages
        self.memories: list[Memory] = []
        prefixes: dict[StoredAs, str] = {}
        for variant in variants:
            key = variant.stored_as()
            prefix = prefixes.setdefault(key, f"{key_prefix}-{len(prefixes)}")
            memory = Memory(url, embeddings=model_of(variant.embeddings), recall=variant.options, key_prefix=prefix)
            self.memories.append(memory)
            self._keepers.setdefault(key, memory)
        self.categories: list[str] = []  # of the questions that were asked
        self._rows: list[list[Array]] = [[] for _ in variants]
        self._full: list[bool] = [False for _ in variants]  # some question had as many hits as it may have
        self.seconds: list[list[float]] = [[] for _ in variants]

    def __len__(self) -> int:
        """Count the questions."""
        return sum(len(questions) for _, questions in self._work)

    def asked(self) -> Iterator[tuple[Resource, Question]]:
        """Yield each question at its moment: when the messages before it are stored, and no later ones of its resource."""
        for resource, questions in self._work:
            if not questions:  # its words count in the ranking of the others' messages
                self.store(resource, len(resource.messages))
            for question in questions:
                self.store(resource, question.known)
                yield resource, question

    def store(self, resource: Resource, known: int) -> None:
        """Store the messages of a resource up to that number."""
        new = resource.messages[self._stored[resource.id] : known]
        if not new:
            return
        self._stored[resource.id] = known
        by_thread: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for record in new:
            by_thread[record["thread_id"]].append(record)
        records = [header(resource.id)]
        for thread_id, messages in by_thread.items():
            records += [resource.threads[thread_id], *messages]
        for memory in self._keepers.values():
            try:
                memory.users.load(records)
            except EmbeddingError as error:
                del error.__notes__  # it says how to go on with what is imported, which nobody will
                raise

    def measure(self, resource: Resource, question: Question) -> None:
        """Ask every variant, once as a program would, for the time, and once or more for the figures."""
        self.categories.append(question.category)
        for at, (variant, memory) in enumerate(zip(self.variants, self.memories, strict=True)):
            start = time.perf_counter()
            search(memory, resource, question)
            self.seconds[at].append(time.perf_counter() - start)
            self._rows[at].append(self._row(at, variant, memory, resource, question))

    def _row(self, at: int, variant: Variant, memory: Memory, resource: Resource, question: Question) -> Array:
        """Note each top_k and message_range of a question.

        The hits of a search are ranked and do not depend on their windows, so one search with the widest windows gives
        all message ranges, and every top_k up to `variant.together`.
        """
        noted = np.zeros((len(variant.top_k), len(variant.ranges), 4))
        widest = (max(before for before, _ in variant.ranges), max(after for _, after in variant.ranges))
        together = [top_k for top_k in variant.top_k if top_k <= variant.together]
        for group in [together] * bool(together) + [[top_k] for top_k in variant.top_k if top_k > variant.together]:
            hits = search(memory, resource, question, top_k=group[-1], message_range=widest).hits
            for position, window in enumerate(variant.ranges):
                notes = [*_notes(hits, window, question.evidence)]
                for top_k in group:
                    noted[variant.top_k.index(top_k), position] = notes[min(top_k, len(hits))]
        self._full[at] |= len(hits) >= variant.top_k[-1]
        return noted

    def results(self, chosen: Sequence[bool]) -> list[Measured]:
        """Return what each variant found, for some of the questions that were asked."""
        return [
            Measured(np.array(rows)[np.array(chosen)], variant.top_k, ends=variant.limited or not full)
            for variant, rows, full in zip(self.variants, self._rows, self._full, strict=True)
        ]

    def close(self) -> None:
        """Close the memories."""
        for memory in self.memories:
            memory.close()


def search(memory: Memory, resource: Resource, question: Question, **limits: Any) -> RecallResult:
    """Search as a program does at the date of the question."""
    return memory.recall.search(question.text, resource_id=resource.id, now=question.date, **limits)


def tokens_of(message: BaseMessage) -> int:
    """Estimate tokens: a quarter of the characters."""
    return math.ceil(len(message.text) / 4)


def _picked(resource: Resource, limit: int | None, resources: int) -> list[Question]:
    """Take every n-th question, in the order in which their messages become known."""
    questions = resource.questions
    each = max(1, limit // resources) if limit else len(questions)
    return sorted(questions[:: max(1, len(questions) // (each or 1))], key=attrgetter("known"))


def _notes(
    hits: Iterable[RecallHit], window: tuple[int, int], evidence: frozenset[Key]
) -> Iterator[tuple[float, float, float, float]]:
    """Yield ANY, SHARE, ALL and TOKENS for no hit, the first hit, the first two hits, and so on."""
    before, after = window
    seen: set[Key] = set()
    tokens = found = 0
    yield 0.0, 0.0, 0.0, 0.0
    for hit in hits:
        for message in (*hit.before[max(0, len(hit.before) - before) :], hit.message, *hit.after[:after]):
            key = (hit.thread_id, str(message.id))
            if key not in seen:
                seen.add(key)
                tokens += tokens_of(message)
                found += key in evidence
        yield float(found > 0), found / len(evidence), float(found == len(evidence)), float(tokens)
