"""Measures files of conversations and questions on a private Redis: stores what is known at each question, and asks it."""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import asdict
from functools import cache
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.embeddings import embeddings_by_name
from langchain_workingmem.errors import EmbeddingError
from langchain_workingmem.evaluation.figures import Measured, compare, updates
from langchain_workingmem.evaluation.formats import ADVERSARIAL, read
from langchain_workingmem.evaluation.variants import variant_of
from langchain_workingmem.memory import Memory
from langchain_workingmem.users import sections

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Sequence
    from typing import TextIO

    from langchain_core.embeddings import Embeddings

    from langchain_workingmem.evaluation.datasets import DataSet, Key, Question, Resource
    from langchain_workingmem.evaluation.figures import Array
    from langchain_workingmem.evaluation.variants import Variant
    from langchain_workingmem.models import RecallHit, RecallResult


def evaluate(
    files: Iterable[tuple[str, TextIO]],
    variants: Sequence[str],
    budgets: Sequence[int],
    *,
    limit: int | None = None,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Measure variants of recall on open files, each with its name; return a record for each table of figures.

    Everything is stored on a private Redis, which is deleted at the end. Raises `OptionError` for a file or a variant that
    cannot be used.
    """
    from tqdm.auto import tqdm

    data_sets, model_of = read(files), cache(embeddings_by_name)
    results: list[dict[str, Any]] = []
    with EmbeddedRedis() as server:
        for number, data in enumerate(data_sets):
            messages, most, tokens = data.sizes()
            size: dict[str, Any] = {"budget": max(budgets), "tokens": max(1.0, tokens / messages), "most": most}
            made = [variant_of(one, **size) for one in variants]
            bench = Bench(server.url, data, made, model_of=model_of, key_prefix=f"eval-{number}", limit=limit)
            with closing(bench):
                for asked in tqdm(bench.asked(), desc="questions", total=len(bench), disable=not progress):
                    bench.measure(*asked)
            results += _figures(data, bench, budgets)
    return results


def _figures(data: DataSet, bench: Bench, budgets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Make the figures of a data set, and those of its questions with a false premise, if it has some."""
    messages, _, tokens = data.sizes()
    asked, left_out = Counter(bench.categories), dict(data.left_out)
    if unasked := sum(len(one.questions) for one in data.resources) - len(bench.categories):
        left_out["questions (--limit)"] = unasked
    for adversarial in (False, True):
        categories = {one: number for one, number in sorted(asked.items()) if (one == ADVERSARIAL) == adversarial}
        if not categories:
            continue
        cells = _cells(bench, budgets, categories)
        by_category = {one: _cells(bench, budgets, {one}) for one in categories}
        asks_of_updates = not adversarial and any(map(any, bench.ranks))
        yield {
            "data": f"{data.name}, {ADVERSARIAL}" if adversarial else data.name,
            "questions": sum(categories.values()),
            "messages": messages,
            "tokens": tokens,
            "resources": len(data.resources),
            "left_out": left_out,
            "variants": [
                {
                    "options": variant.label,
                    "milliseconds": statistics.median(bench.seconds[at]) * 1000,
                    "updates": asdict(updates(filter(None, bench.ranks[at]))) if asks_of_updates else None,
                    "budgets": cells[at],
                    "categories": [
                        {"category": one, "questions": number, "budgets": by_category[one][at]}
                        for one, number in categories.items()
                    ],
                }
                for at, variant in enumerate(bench.variants)
            ],
        }


def _cells(bench: Bench, budgets: Sequence[int], categories: Container[str]) -> list[list[dict[str, Any]]]:
    """Return the cells of each variant as records, for the questions of some categories."""
    table = compare(bench.results([one in categories for one in bench.categories]), budgets)
    records = [[{"tokens": budget, **asdict(cell)} for budget, cell in zip(budgets, row, strict=True)] for row in table]
    for variant, row in zip(bench.variants, records, strict=True):
        for record in row:
            at = record["message_range"]
            record["message_range"] = None if at is None else variant.ranges[at]
    return records


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
        self._stored: dict[str, int] = defaultdict(int)  # resource -> messages
        kinds = [one.stored_as() for one in variants]
        numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
        self.memories = [
            Memory(url, embeddings=model_of(one.embeddings), recall=one.options, key_prefix=f"{key_prefix}-{number}")
            for one, number in zip(variants, map(numbers.__getitem__, kinds), strict=True)
        ]
        self._keepers = dict(zip(kinds, self.memories, strict=True)).values()  # which store the messages
        self.categories: list[str] = []  # of the questions that were asked
        self._rows: list[list[Array]] = [[] for _ in variants]
        self._full: list[bool] = [False for _ in variants]  # some question had as many hits as it may have
        self.seconds: list[list[float]] = [[] for _ in variants]
        # of each question about an update the ranks of its evidence, in order of time; of others nothing
        self.ranks: list[list[list[float]]] = [[] for _ in variants]

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
        if not (new := resource.messages[self._stored[resource.id] : known]):
            return
        self._stored[resource.id] = known
        by_thread: dict[str, list[dict[str, Any]]] = {}
        for record in new:
            by_thread.setdefault(record["thread_id"], [resource.threads[record["thread_id"]]]).append(record)
        records = [sections.header(resource.id), *chain.from_iterable(by_thread.values())]
        for memory in self._keepers:
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
            result = search(memory, resource, question)
            self.seconds[at].append(time.perf_counter() - start)
            self.ranks[at].append(_ranks(result.hits, resource, question))
            self._rows[at].append(self._row(at, variant, memory, resource, question))

    def _row(self, at: int, variant: Variant, memory: Memory, resource: Resource, question: Question) -> Array:
        """Note each top_k and message_range of a question.

        The hits of a search are ranked and do not depend on their windows, so one search with the widest windows gives
        all message ranges, and every top_k up to `variant.together`.
        """
        noted = np.zeros((len(variant.top_k), len(variant.ranges), 4))
        widest = (max(before for before, _ in variant.ranges), max(after for _, after in variant.ranges))
        groups: dict[int, list[int]] = {}  # which one search gives
        for top_k in variant.top_k:
            groups.setdefault(max(top_k, variant.together), []).append(top_k)
        for group in groups.values():
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


def _picked(resource: Resource, limit: int | None, resources: int) -> list[Question]:
    """Take every n-th question, in the order in which their messages become known."""
    questions = resource.questions
    each = max(1, limit // resources) if limit else len(questions)
    return sorted(questions[:: max(1, len(questions) // (each or 1))], key=attrgetter("known"))


def _ranks(hits: Sequence[RecallHit], resource: Resource, question: Question) -> list[float]:
    """Return at which rank each piece of evidence comes back, in order of time; nothing for a question about no update."""
    if "update" not in question.category.lower() or len(question.evidence) < 2:
        return []
    keys = ((record["thread_id"], str(record["message"]["data"]["id"])) for record in resource.messages)
    ranks = {key: math.inf for key in keys if key in question.evidence}
    for rank, hit in enumerate(hits):
        for message in (*hit.before, hit.message, *hit.after):
            if (key := (hit.thread_id, str(message.id))) in ranks:
                ranks[key] = min(ranks[key], rank)
    return [*ranks.values()]


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
                tokens += count_tokens(str(message.text))
                found += key in evidence
        yield float(found > 0), found / len(evidence), float(found == len(evidence)), float(tokens)
