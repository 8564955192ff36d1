"""`eval`: how much recall finds on one's own data."""

from __future__ import annotations

import math
import statistics
import sys
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import fields
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import MARKDOWN
from rich.console import Group, RenderableType
from rich.table import Table

from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import AsJson  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.files import reading
from langchain_workingmem.cli.output import show, text
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.embeddings import embeddings_by_name
from langchain_workingmem.errors import OptionError
from langchain_workingmem.evaluation import ADVERSARIAL, DEFAULTS, SAMPLES, Bench, between, compare, read, short, variant_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from langchain_workingmem.evaluation import Cell, DataSet, Question, Resource, Variant

_FILES = "Conversations and questions: JSON lines, such as an export, or locomo10.json; also gzipped (.gz). - is standard input."
_WITH = "Options to measure, such as search=semantic,weights.length=0.2. Repeatable; the first is the base."
_BUDGET = "Numbers of tokens, at which recall is compared."
_LEGEND = (
    "A column is a number of tokens that come back; a gain is over the first options. "
    f"Of {SAMPLES:,} random samples of the questions, 95 % lie within the brackets."
)
_EMPTY = "An empty cell: even one hit has more tokens, or the most hits that were asked for have fewer."
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help=_FILES)]
With = Annotated[list[str] | None, typer.Option("--with", metavar="NAME=VALUE,...", help=_WITH)]
Budget = Annotated[str, typer.Option(metavar="TOKENS,...", help=_BUDGET)]
Questions = Annotated[int | None, typer.Option("--limit", min=1, help="About so many questions of each data set.")]


def eval_(
    files: Files,
    *,
    with_: With = None,
    budget: Budget = "500,1000,2000",
    limit: Questions = None,
    as_json: AsJson = False,
) -> None:
    """Measure on your own questions how much of the evidence recall finds, for options side by side.

    It runs on a private Redis that is deleted afterwards, and touches no other data.
    """
    budgets = _budgets(budget)
    given = with_ or [DEFAULTS]
    for one in given:
        _variant(one)  # a wrong one is refused before the files are read
    models = cache(embeddings_by_name)
    results = []
    with EmbeddedRedis() as server:
        for number, data in enumerate(_read(files)):
            variants = [_variant(one, **_size(data, budgets)) for one in given]
            bench = Bench(server.url, data, variants, model_of=models, key_prefix=f"eval-{number}", limit=limit)
            with closing(bench):
                for resource, question in _with_bar(bench):
                    bench.measure(resource, question)
            results.append(_result(data, bench, budgets))
    show([*chain(*results)] if as_json else Group(*map(_drawn, chain(*results))), as_json=as_json, wide=True)


# ---------------------------------------------------------------------- what is measured


def _budgets(given: str) -> list[int]:
    try:
        budgets = [int(one) for one in given.split(",")]
    except ValueError:
        budgets = []
    if not budgets or min(budgets) < 1:
        base.misused(f"--budget {given!r} is no list of numbers of tokens: write 500,1000,2000")
    return budgets


def _variant(given: str, **size: Any) -> Variant:
    try:
        return variant_of(given, **size)
    except OptionError as error:
        base.misused(f"--with {given!r}: {error}")


def _read(files: Sequence[str]) -> list[DataSet]:
    with ExitStack() as stack:
        return read((name, stack.enter_context(reading(name))) for name in files)


def _size(data: DataSet, budgets: Sequence[int]) -> dict[str, Any]:
    messages, most, tokens = data.sizes()
    return {"budget": max(budgets), "tokens": max(1.0, tokens / messages), "most": most}


def _with_bar(bench: Bench) -> Iterator[tuple[Resource, Question]]:
    from tqdm.auto import tqdm

    return iter(tqdm(bench.asked(), desc="questions", total=len(bench), disable=not sys.stderr.isatty()))


# ---------------------------------------------------------------------- what comes out


def _result(data: DataSet, bench: Bench, budgets: Sequence[int]) -> Iterator[dict[str, Any]]:
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
    table = compare(bench.measured([one in categories for one in bench.categories]), budgets)
    return [
        [{"tokens": budget, **_record(cell, variant)} for budget, cell in zip(budgets, cells, strict=True)]
        for cells, variant in zip(table, bench.variants, strict=True)
    ]


def _record(cell: Cell, variant: Variant) -> dict[str, Any]:
    record = {field.name: getattr(cell, field.name) for field in fields(cell)}
    at = cell.message_range
    return record | {"message_range": None if at is None else variant.ranges[at]}


def _drawn(result: dict[str, Any]) -> Group:
    """Draw the tables of a data set."""
    variants = result["variants"]
    budgets = [f"{cell['tokens']:,}" for cell in variants[0]["budgets"]]
    head = (
        f"{result['data']}: {_counted(result, 'questions')} about {_counted(result, 'messages')} of "
        f"{_counted(result, 'resources')}, {result['tokens']:,} tokens"
    )
    left_out = [f"left out: {number:,} {what}" for what, number in result["left_out"].items()]
    shares, points = _table("share of evidence", *budgets, "ms"), _table("top_k x range", *budgets)
    for number, variant in enumerate(variants):
        label, cells = text(variant["options"]), variant["budgets"]
        shares.add_row(label, *(_share(cell) for cell in cells), f"{variant['milliseconds']:.1f}")
        if number:
            shares.add_row("  gain", *(_gain(cell) for cell in cells), "")
        points.add_row(label, *map(_point, cells))
    drawn: list[RenderableType] = [text(head, "bold"), *map(text, left_out), shares, points]
    if len(variants[0]["categories"]) > 1:
        drawn.append(_by_category(variants, budgets))
    drawn.append(text(_LEGEND, "dim"))
    if any(cell["top_k"] is None for variant in variants for cell in variant["budgets"]):
        drawn.append(text(_EMPTY, "dim"))
    return Group(*drawn)


def _by_category(variants: Sequence[dict[str, Any]], budgets: Sequence[str]) -> Table:
    table = _table("category", "questions", "options", *budgets)
    for rows in zip(*(variant["categories"] for variant in variants), strict=True):
        for variant, row in zip(variants, rows, strict=True):
            name = text(row["category"] or "(none)")
            table.add_row(name, f"{row['questions']:,}", text(variant["options"]), *(map(_share, row["budgets"])))
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(first, box=MARKDOWN)
    for column in columns:
        table.add_column(column, justify="left" if column == "options" else "right")
    return table


def _counted(result: dict[str, Any], what: str) -> str:
    number = result[what]
    return f"{number:,} {what if number != 1 else what[:-1]}"


def _share(cell: dict[str, Any]) -> str:
    return "" if math.isnan(cell["share"]) else f"{short(cell['share'])} {between(cell['interval'])}"


def _gain(cell: dict[str, Any]) -> str:
    gain = cell["gain"]
    return "" if math.isnan(gain) else f"{short(gain, sign=True)} {between(cell['gain_interval'], sign=True)}"


def _point(cell: dict[str, Any]) -> str:
    if cell["top_k"] is None:
        return ""
    before, after = cell["message_range"]
    return f"{cell['top_k']} x {before if before == after else (before, after)}"


COMMANDS = (eval_,)
