"""What memory and its turns cost: bars of tokens for a turn, over a thread and over a user, with prices if some are given."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem._text.observed import to_minute
from langchain_workingmem._text.rendering import message_text
from langchain_workingmem.studio.conversations import read_slice
from langchain_workingmem.studio.site import number, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langchain_core.messages import BaseMessage
    from starlette.requests import Request
    from starlette.responses import Response

    from langchain_workingmem.models import Page, StoredMessage
    from langchain_workingmem.studio.site import Studio

READ = 2_000  # messages that one page counts
DAYS, MOST_DAYS = 7, 365
HEIGHT = 40  # of a plot whose width is 100
LISTED = 50  # rows of the table below a plot


@dataclass(slots=True)
class Spent:
    """Tokens of a turn or of a day."""

    label: str
    at: int | None = None  # position of the question of a turn
    asked: int = 0  # of what the user said, estimated
    answered: int = 0  # of answers, calls and results, estimated
    calls: int = 0  # of models whose answers say what they took
    input: int = 0  # as these say
    cached: int = 0  # of the input
    output: int = 0

    def add(self, message: BaseMessage) -> None:
        """Add a stored message."""
        tokens = count_tokens(message_text(message, whole=True))
        if message.type == "human":
            self.asked += tokens
        else:
            self.answered += tokens
        if reported := getattr(message, "usage_metadata", None):
            self.calls += 1
            self.input += reported["input_tokens"]
            self.output += reported["output_tokens"]
            self.cached += (reported.get("input_token_details") or {}).get("cache_read") or 0

    @property
    def stored(self) -> dict[str, int]:
        """Return the parts of the bar of what is stored."""
        return {"question": self.asked, "history": self.answered}

    @property
    def reported(self) -> dict[str, int]:
        """Return the parts of the bar of what models took."""
        return {"cached": self.cached, "input": self.input - self.cached, "output": self.output}


class Bar(NamedTuple):
    """A part of a bar."""

    part: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Plot:
    """Stacked bars in a picture that is 100 wide and `HEIGHT` high."""

    top: int  # tokens of the highest bar
    bars: list[Bar] = field(default_factory=list)


def plot(columns: Sequence[Mapping[str, int]]) -> Plot:
    """Draw a bar for each column, its parts from the bottom to the top."""
    found = Plot(max((sum(parts.values()) for parts in columns), default=0))
    step = 100 / max(len(columns), 1)
    for at, parts in enumerate(columns):
        y = float(HEIGHT)
        for name, tokens in parts.items():
            if tokens:
                height = HEIGHT * tokens / found.top
                y -= height
                found.bars.append(Bar(name, at * step, y, step * 0.85, height))
    return found


def shares(parts: Mapping[str, int]) -> list[Bar]:
    """Draw one bar that lies, with the shares of its parts."""
    total, at, found = sum(parts.values()), 0.0, []
    for name, tokens in parts.items():
        if tokens:
            width = 100 * tokens / total
            found.append(Bar(name, at, 0, width, 5))
            at += width
    return found


async def cost(studio: Studio, request: Request) -> Response:
    """Plot the tokens of the turns of a thread, or of the last days of a user with the work of models in the background."""
    given, resource = request.query_params, studio.owner(request)
    one = await studio.thread(request) if given.get("thread") else None
    older, background, page = None, None, None
    days = size(request, "days", DAYS, MOST_DAYS)
    if one is not None:
        below = number(given.get("below"))
        plan = read_slice(studio.state, one.id, one.resource_id, limit=READ, below=below, superseded=False)
        part = await studio.run(plan)
        spent = by_turn(part.rows)
        older = part.first if part.has_older else None
    else:
        zone = studio.zone(request, resource)
        page = await newest(studio, resource, timedelta(days=days))
        by_day: dict[str, Spent] = {}
        for row in page:
            day = to_minute(row.stored_at, zone)[:10]
            by_day.setdefault(day, Spent(day)).add(row.message)
        spent = [*by_day.values()]
        background = await studio.memory.users.ausage(resource)
    names = ("asked", "answered", "calls", "input", "cached", "output")
    total = Spent("all", **{name: sum(getattr(each, name) for each in spent) for name in names})
    values = {
        "spent": spent,
        "total": total,
        "stored": plot([each.stored for each in spent]),
        "reported": plot([each.reported for each in spent]),
        "listed": spent[: -LISTED - 1 : -1],
        "background": background,
        "older": older,
        "page": page,
        "days": days,
    }
    return studio.page(request, "cost.html", user=resource, thread=one, **values)


async def newest(studio: Studio, resource: str, age: timedelta) -> Page[StoredMessage]:
    """Read the messages of a user up to an age; of more than `READ`, the newest ones, at least half as many. `total` counts all.

    Where there are too many, it looks for an age with so few, each time with the round trips of `history.for_resource`.
    """
    read, now = partial(studio.memory.history.afor_resource, resource), datetime.now(UTC)
    page = await read(since=now - age, limit=READ)
    number, least, most = page.total, timedelta(), age
    if number <= READ:
        return page
    while not READ // 2 <= number <= READ and most - least > timedelta.resolution:
        half = (least + most) / 2
        number = (await read(since=now - half, limit=1)).total
        least, most = (least, half) if number > READ else (half, most)
    return replace(await read(since=now - least, limit=READ), total=page.total)


def by_turn(rows: Iterable[StoredMessage]) -> list[Spent]:
    """Add up each turn: questions of the user in a row, and all that follows them."""
    found: list[Spent] = []
    last = ""
    for row in rows:
        if not found or (row.message.type == "human" and last != "human"):
            found.append(Spent(f"#{row.seq}", row.seq))
        found[-1].add(row.message)
        last = row.message.type
    return found
