"""Two side by side: the contexts of two turns of a thread, and what recall finds with two settings."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from langchain_workingmem._documents.lines import unified
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.rendering import message_text
from langchain_workingmem.errors import OptionError
from langchain_workingmem.models import RecallResult
from langchain_workingmem.recall import Query, search_messages
from langchain_workingmem.studio.conversations import read_slice
from langchain_workingmem.studio.inspecting import (
    MOST_HITS,
    QUESTIONS,
    context_of,
    items_of,
    question_at,
    recall_is_off,
)
from langchain_workingmem.studio.site import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import RecallArguments
    from langchain_workingmem.studio.inspecting import Item
    from langchain_workingmem.studio.site import Studio

TURNS = 50  # that a page offers
SETTINGS = ("top_k", "threshold", "search", "scope", "max_tokens", "reranker")  # of one side
SHOWN = 100  # parts that are new or gone, of a page


class Change(NamedTuple):
    """What became of a part, or of several in a row that are the same."""

    kind: str  # kept, gone, new, or changed: a block of the same name with other lines
    items: Sequence[Item]
    lines: Sequence[str] = ()  # of a changed block


async def turns(studio: Studio, request: Request) -> Response:
    """Compare the contexts of two turns of a thread, by default of the last two; a question stands for the next turn."""
    one, given = await studio.thread(request), request.query_params
    question = given.get("q", "").strip()
    part = await studio.run(read_slice(studio.state, one.id, one.resource_id, limit=TURNS, **QUESTIONS))
    asked = {row.seq: row for row in part.rows}
    earlier, later = number(given.get("earlier")), number(given.get("later"))
    if question:
        later = None
    elif later is None:
        later = max(asked, default=None)
    if earlier is None:
        earlier = max((at for at in asked if later is None or at < later), default=None)
    sides: list[MemoryContext] = []
    if earlier is not None and (later is not None or question):
        for at in (earlier, later):
            row = await question_at(studio, one, at)
            if row is not None:
                asked[row.seq] = row
            sides.append(await context_of(studio, one, row or question))
    changes = compare(items_of(sides[0]), items_of(sides[1])) if sides else []
    values = {
        "changes": changes[: 2 * SHOWN],
        "left": sum(len(change.items) for change in changes[2 * SHOWN :]),
        "parts": by_part(changes),
        "total": sides[1].usage.total if sides else 0,
        "turns": [(at, message_text(row.message)) for at, row in sorted(asked.items())],
        "chosen": (earlier, later),
        "question": question,
    }
    return studio.page(request, "compare.html", user=one.resource_id, thread=one, **values)


async def settings(studio: Studio, request: Request) -> Response:
    """Show what recall finds with two settings, side by side. With a thread, a setting may search this one alone."""
    given, sides = request.query_params, list[RecallResult]()
    one = await studio.thread(request) if given.get("thread") else None
    resource, question = studio.owner(request), given.get("q", "").strip()
    if question:
        for side in "ab":
            wanted = {name: given.get(f"{side}_{name}", "").strip() for name in SETTINGS}
            state, arguments = _settings(studio.state, wanted)
            ids: dict[str, Any] = {"resource_id": resource, "thread_id": one.id if one else None}
            query = Query.of(state.recalling, question, **ids, thread_filters=state.thread_filters, **arguments)
            sides.append(await studio.run(search_messages(state, query)))
    ranks = [{(hit.thread_id, hit.message.id): at for at, hit in enumerate(side.hits, 1)} for side in sides]
    values = {"question": question, "sides": sides, "ranks": ranks, "options": studio.state.recall, "most": MOST_HITS}
    return studio.page(request, "settings.html", user=resource, thread=one, **values)


def _settings(state: MemoryState, given: Mapping[str, str]) -> tuple[MemoryState, RecallArguments]:
    """Read the settings of one side: those of an option change a copy of the state, the others are arguments of a search."""
    if state.recall is None:
        raise recall_is_off()
    kept = state.recall.reranker if given["reranker"] != "off" else None
    options = replace(state.recall, search=given["search"] or state.recall.search, reranker=kept)  # type: ignore[arg-type]
    changed = copy(state)
    changed.indexes = copy(state.indexes)
    changed.recall = changed.indexes.recall = options
    threshold: float | None = None
    if given["threshold"]:
        try:
            threshold = float(given["threshold"])
        except ValueError:
            raise OptionError(f"threshold {given['threshold']!r}", remedy="write a number from 0 to 1") from None
    top_k = number(given["top_k"])
    found: dict[str, Any] = {
        "threshold": threshold,
        "top_k": None if top_k is None else min(top_k, MOST_HITS),
        "max_tokens": number(given["max_tokens"]),
        "scope": given["scope"] or None,
    }
    return changed, cast("RecallArguments", found)


def compare(before: Sequence[Item], after: Sequence[Item]) -> list[Change]:
    """Say what became of each part of a context: of the history, then of each block of memory, then of the question.

    A question is the same when it stands in the history later.
    """
    said, blocks = zip(*(_divided(side) for side in (before, after)), strict=True)
    texts, others = ([(item.role, item.text) for item in side] for side in said)
    found: list[Change] = []
    for kind, start, end, first, last in SequenceMatcher(None, texts, others, autojunk=False).get_opcodes():
        if kind == "equal":
            found.append(Change("kept", said[1][first:last]))
            continue
        found += [Change("gone", [item]) for item in said[0][start:end]]
        found += [Change("new", [item]) for item in said[1][first:last]]
    question = [change for change in found if change.items[0].part == "question"]
    history = [change for change in found if change.items[0].part != "question"]
    names = dict.fromkeys([*blocks[1], *blocks[0]])
    return [*history, *(_change(blocks[0].get(name), blocks[1].get(name)) for name in names), *question]


def _divided(items: Iterable[Item]) -> tuple[list[Item], dict[tuple[str, int], Item]]:
    """Return the messages, and the blocks of memory by name and number."""
    said: list[Item] = []
    blocks: dict[tuple[str, int], Item] = {}
    for item in items:
        if item.part in {"history", "question"}:
            said.append(item)
        else:
            blocks[item.part, sum(name == item.part for name, _ in blocks)] = item
    return said, blocks


def _change(before: Item | None, after: Item | None) -> Change:
    if before is None or after is None:
        return Change("gone" if after is None else "new", [one for one in (before, after) if one])
    if before.text == after.text:
        return Change("kept", [after])
    return Change("changed", [after], [*unified(before.text.split("\n"), after.text.split("\n"))])


def by_part(changes: Iterable[Change]) -> dict[str, dict[str, int]]:
    """Return the tokens of each part of a context that are kept, changed, new and gone."""
    found: dict[str, dict[str, int]] = {}
    for change in changes:
        for item in change.items:
            part = found.setdefault(item.part, dict.fromkeys(("kept", "changed", "new", "gone"), 0))
            part[change.kind] += count_tokens(item.text)
    return found
