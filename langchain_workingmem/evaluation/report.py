"""Measures files of conversations and questions on a private Redis, and gives the figures as records."""

from __future__ import annotations

import statistics
from collections import Counter
from contextlib import closing
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.embeddings import embeddings_by_name
from langchain_workingmem.evaluation.figures import compare
from langchain_workingmem.evaluation.formats import ADVERSARIAL, read
from langchain_workingmem.evaluation.measuring import Bench
from langchain_workingmem.evaluation.variants import variant_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from typing import TextIO

    from langchain_workingmem.evaluation.datasets import DataSet
    from langchain_workingmem.evaluation.figures import Cell
    from langchain_workingmem.evaluation.variants import Variant


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
            results += _results(data, bench, budgets)
    return results


def _results(data: DataSet, bench: Bench, budgets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Make the figures of a data set, and those of its questions with a false premise, if it has some."""
    messages, _, tokens = data.sizes()
    asked = Counter(bench.categories)
    about = {"messages": messages, "tokens": tokens, "resources": len(data.resources)}
    left_out = dict(data.left_out)
    if unasked := sum(len(one.questions) for one in data.resources) - len(bench.categories):
        left_out["questions (--limit)"] = unasked
    for adversarial in (False, True):
        categories = {one: number for one, number in asked.items() if (one == ADVERSARIAL) == adversarial}
        if not categories:
            continue
        cells = _compared(bench, budgets, categories)
        by_category = {one: _compared(bench, budgets, {one}) for one in categories}
        yield {
            "data": f"{data.name}, {ADVERSARIAL}" if adversarial else data.name,
            "questions": sum(categories.values()),
            **about,
            "left_out": left_out,
            "variants": [
                {
                    "options": variant.label,
                    "milliseconds": statistics.median(bench.seconds[at]) * 1000,
                    "budgets": cells[at],
                    "categories": [
                        {"category": one, "questions": number, "budgets": by_category[one][at]}
                        for one, number in sorted(categories.items())
                    ],
                }
                for at, variant in enumerate(bench.variants)
            ],
        }


def _compared(bench: Bench, budgets: Sequence[int], categories: Container[str]) -> list[list[dict[str, Any]]]:
    """Return the cells of each variant as records, for the questions of some categories."""
    table = compare(bench.results([one in categories for one in bench.categories]), budgets)
    return [
        [{"tokens": budget, **_record(cell, variant)} for budget, cell in zip(budgets, cells, strict=True)]
        for cells, variant in zip(table, bench.variants, strict=True)
    ]


def _record(cell: Cell, variant: Variant) -> dict[str, Any]:
    record = {field.name: getattr(cell, field.name) for field in fields(cell)}
    at = cell.message_range
    return record | {"message_range": None if at is None else variant.ranges[at]}
