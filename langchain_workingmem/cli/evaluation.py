"""`eval`: how much recall finds on one's own data."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import MARKDOWN
from rich.console import Group, RenderableType
from rich.table import Table

from langchain_workingmem.cli import base
from langchain_workingmem.cli.base import Output  # noqa: TC001 - typer reads annotations
from langchain_workingmem.cli.streams import reading, text
from langchain_workingmem.display.pictures import counted
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILES = "Conversations and questions: JSON lines, such as an export, or locomo10.json; also gzipped (.gz). - is standard input."
_WITH = "Options to measure, such as search=semantic,weights.length=0.2. Repeatable; the first is the base."
_BUDGET = "Numbers of tokens, at which recall is compared."
_LEGEND = (
    "A column is a number of tokens that come back; a gain is over the first options. "
    "Of 1,000 random samples of the questions, 95 % lie within the brackets."
)
_EMPTY = "An empty cell: even one hit has more tokens, or the most hits that were asked for have fewer."
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help=_FILES)]
With = Annotated[list[str] | None, typer.Option("--with", metavar="NAME=VALUE,...", help=_WITH)]
Budget = Annotated[str, typer.Option(metavar="TOKENS,...", help=_BUDGET)]
Questions = Annotated[
    int | None, typer.Option("--limit", min=1, help="Ask about this many questions of each data set.")
]


def eval_(
    files: Files,
    *,
    with_: With = None,
    budget: Budget = "500,1000,2000",
    limit: Questions = None,
) -> Output:
    """Measure on your own questions how much of the evidence recall finds, for options side by side.

    Examples:
        workingmem eval maya.jsonl questions.jsonl
        workingmem eval locomo10.json --with search=semantic --with search=hybrid

    It runs on a private Redis that is deleted afterwards, and touches no other data.
    """
    from langchain_workingmem.evaluation import DEFAULTS, evaluate, variant_of

    variants, budgets = with_ or [DEFAULTS], _budgets(budget)
    for one in variants:
        try:
            variant_of(one)
        except OptionError as error:
            base.misused(f"--with {one!r}: {error}")
    with ExitStack() as stack:
        opened = ((name, stack.enter_context(reading(name))) for name in files)
        results = evaluate(opened, variants, budgets, limit=limit, progress=sys.stderr.isatty())
    yield results, _page(results)


def _budgets(given: str) -> list[int]:
    try:
        budgets = [int(one) for one in given.split(",")]
    except ValueError:
        budgets = []
    if not budgets or min(budgets) < 1:
        base.misused(f"--budget {given!r} is no list of numbers of tokens: write 500,1000,2000")
    return budgets


# ---------------------------------------------------------------------- what comes out


def _page(results: Sequence[dict[str, Any]]) -> Group:
    """Draw all tables, and what they mean."""
    drawn: list[RenderableType] = [*map(_drawn, results), text(_LEGEND, "dim")]
    variants = [variant for result in results for variant in result["variants"]]
    if any(cell["top_k"] is None for variant in variants for cell in variant["budgets"]):
        drawn.append(text(_EMPTY, "dim"))
    return Group(*drawn)


def _drawn(result: dict[str, Any]) -> Group:
    """Draw the tables of a data set."""
    variants = result["variants"]
    budgets = [f"{cell['tokens']:,}" for cell in variants[0]["budgets"]]
    questions, messages, resources = (counted(result[f"{what}s"], what) for what in ("question", "message", "resource"))
    head = f"{result['data']}: {questions} about {messages} of {resources}, {result['tokens']:,} tokens"
    left_out = [f"left out: {what}: {number:,}" for what, number in result["left_out"].items()]
    shares, points = _table("share of evidence", *budgets, "ms"), _table("top_k x range", *budgets)
    for number, variant in enumerate(variants):
        label, cells = text(variant["options"]), variant["budgets"]
        shares.add_row(label, *(_share(cell) for cell in cells), f"{variant['milliseconds']:.1f}")
        if number:
            shares.add_row("  gain", *(_share(cell, "gain") for cell in cells), "")
        points.add_row(label, *map(_point, cells))
    drawn: list[RenderableType] = [text(head, "bold"), *map(text, left_out), shares, points]
    if len(variants[0]["categories"]) > 1:
        drawn.append(_by_category(variants, budgets))
    if variants[0]["updates"]:
        drawn.append(_updates(variants))
    return Group(*drawn)


def _by_category(variants: Sequence[dict[str, Any]], budgets: Sequence[str]) -> Table:
    table = _table("category", "questions", "options", *budgets)
    for rows in zip(*(variant["categories"] for variant in variants), strict=True):
        for variant, row in zip(variants, rows, strict=True):
            name = text(row["category"] or "(none)")
            table.add_row(name, f"{row['questions']:,}", text(variant["options"]), *(map(_share, row["budgets"])))
    return table


def _updates(variants: Sequence[dict[str, Any]]) -> Table:
    table = _table("newest evidence of updates", "questions", "missing", "outranked")
    for variant in variants:
        table.add_row(text(variant["options"]), *(f"{number:,}" for number in variant["updates"].values()))
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(first, box=MARKDOWN)
    for column in columns:
        table.add_column(column, justify="left" if column == "options" else "right")
    return table


def _share(cell: dict[str, Any], name: str = "share") -> str:
    from langchain_workingmem.evaluation import between, short  # numpy takes time, which only this command needs

    is_gain = name == "gain"
    written = short(cell[name], sign=is_gain)
    return written and f"{written} {between(cell['gain_interval' if is_gain else 'interval'], sign=is_gain)}"


def _point(cell: dict[str, Any]) -> str:
    if cell["top_k"] is None:
        return ""
    before, after = cell["message_range"]
    return f"{cell['top_k']} x {before if before == after else (before, after)}"
