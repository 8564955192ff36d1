"""Reading the messages of a thread as they are stored: pages, and all of them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.messages import put_media
from langchain_workingmem._engine.plan import compute, send
from langchain_workingmem._redis.access import owner_tag, read_reply
from langchain_workingmem._redis.codec import is_readable, read_rows
from langchain_workingmem._redis.keys import Facts, check_id
from langchain_workingmem._redis.scripts import PAGE
from langchain_workingmem._text.clock import to_micros
from langchain_workingmem.checks import check_roles

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from langchain_workingmem._engine.plan import Command, Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage


def selection(
    *, since: datetime | None = None, until: datetime | None = None, roles: Sequence[str] | None = None, **rest: Any
) -> dict[str, Any]:
    """Check and convert what selects messages, for the head of `page.lua`."""
    found = {
        "since": None if since is None else to_micros(since),
        "until": None if until is None else to_micros(until),
        "roles": None if roles is None else f",{','.join(check_roles(roles))},",
        **rest,
    }
    return {name: value for name, value in found.items() if value is not None and value is not False}


@dataclass(slots=True)
class PageOfThread:
    """The reply of `page.lua`, oldest message first."""

    thread_id: str
    total: int = 0
    owner: str | None = None  # encoded; None: there is no thread
    title_source: str | None = None  # seq of the message that a model has made the title from
    facts: list[Facts] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)  # None for what Redis has evicted; with `times` microseconds
    vectors: list[list[Any]] = field(default_factory=list)  # HGETALL of each

    @classmethod
    def read(
        cls, reply: Any, thread_id: str, user_id: str | None, *, newest: bool = False, superseded: bool = False
    ) -> PageOfThread:
        """Read a reply; raise what it refuses."""
        found = read_reply(reply, thread_id, user_id)
        facts = [Facts.read(text, is_current=not superseded) for text in found.get("shown") or ()]
        bodies, vectors = reply[1], [*(reply[2] if len(reply) > 2 else ())]
        order = slice(None, None, -1 if newest else 1)
        return cls(
            thread_id,
            found.get("total", 0),
            found.get("owner"),
            found.get("title_source"),
            facts[order],
            bodies[order],
            vectors[order],
        )

    def rows(self) -> list[StoredMessage]:
        """Return the messages, without those that cannot be read."""
        pairs = zip(self.facts, self.bodies, strict=True)
        found = ((facts.seq, facts.upto if facts.words else 0, body) for facts, body in pairs)
        return read_rows(found, self.thread_id, make=False)


def page_command(state: MemoryState, thread_id: str, user_id: str | None, wanted: dict[str, Any]) -> Command:
    """Return the call that reads a page; `wanted` is what `selection` returns."""
    return PAGE.on(state.keys.of(check_id(thread_id, "thread_id")), user=owner_tag(user_id), **wanted)


def read_page(
    state: MemoryState, thread_id: str, user_id: str | None, wanted: dict[str, Any], *beside: Command
) -> Plan[tuple[PageOfThread, list[Any]]]:
    """Read a page of a thread, and the replies to the commands `beside`. One round trip."""
    reply, *others = yield from send(page_command(state, thread_id, user_id, wanted), *beside)
    newest, superseded = bool(wanted.get("newest")), bool(wanted.get("superseded"))
    return PageOfThread.read(reply, thread_id, user_id, newest=newest, superseded=superseded), others


def made(state: MemoryState, rows: Sequence[StoredMessage]) -> Plan[list[StoredMessage]]:
    """Make the messages of rows, with their media; without those that cannot be read. One round trip a thread where some have media."""
    yield from with_media(state, rows)
    size = sum(len(str(row.record["data"]["content"])) for row in rows)
    return (yield from compute(partial(readable, rows), size))


def readable(rows: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Make the messages of rows; return the rows where that is possible."""
    return [row for row in rows if is_readable(row)]


def with_media(state: MemoryState, rows: Iterable[StoredMessage]) -> Plan[None]:
    """Put the long strings that lie beside bodies back into rows. One round trip, none without such rows."""
    waiting = [row for row in rows if "media" in row.record]
    if not waiting:
        return
    commands = [
        ("HMGET", state.keys.of(row.thread_id).media, *(f"{row.place}:{at}" for at in range(len(row.record["media"]))))
        for row in waiting
    ]
    for row, texts in zip(waiting, (yield from send(*commands)), strict=True):
        if None in texts:  # deleted meanwhile, or evicted: the message cannot be read
            row.record["type"] = "gone"
        else:
            fill(row, texts)


def fill(row: StoredMessage, texts: list[bytes]) -> None:
    """Put its media into a row; its message is made again then."""
    put_media(row.record, texts)
    with suppress(AttributeError):
        object.__delattr__(row, "message")
