"""Which stored messages a plan reads: the arguments of `read.lua`, and its reply."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import compute
from langchain_workingmem._redis.codec import decode_message, to_micros
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.options import check_roles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langchain_workingmem._engine.effects import Plan
    from langchain_workingmem.models import StoredMessage

READ = Script("history/read")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSelection:
    """A choice of a thread's messages; the defaults choose all of them, oldest first."""

    limit: int | None = None
    newest: bool = False  # the last ones, read backwards
    before: str | None = None  # message ids, exclusive
    after: str | None = None
    above: int | None = None  # sequence numbers, exclusive: where a page begins
    below: int | None = None
    since: int | None = None  # microseconds, inclusive
    until: int | None = None
    roles: tuple[str, ...] = ()
    count: bool = False  # a total is wanted
    times: bool = False  # of the messages nothing but their times is

    @classmethod
    def of(
        cls,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        roles: Sequence[str] | None = None,
        **rest: Any,
    ) -> MessageSelection:
        """Take what a caller says: times, role names."""
        return cls(
            since=None if since is None else to_micros(since),
            until=None if until is None else to_micros(until),
            roles=() if roles is None else check_roles(roles),
            **rest,
        )

    def arguments(self) -> list[str | int]:
        """Write the choice as the script reads it."""
        found: list[str | int] = []
        for name in ("limit", "before", "after", "above", "below", "since", "until"):
            value = getattr(self, name)
            if value is not None:
                found += [name, value]
        if self.newest:
            found += ["newest", 1]
        if self.count:
            found += ["count", 1]
        if self.times:
            found += ["times", 1]
        if self.roles:
            found += ["roles", f",{','.join(self.roles)},"]
        return found

    def reading(self, reply: list[Any], thread_id: str) -> Plan[list[StoredMessage]]:
        """Read the reply as `read` does; a long one without holding up an event loop."""
        return compute(partial(self.read, reply, thread_id), sum(map(len, reply[3::3])))

    def read(self, reply: list[Any], thread_id: str) -> list[StoredMessage]:
        """Read the reply, oldest first."""
        rows = [
            decode_message(id, seq, value, thread_id)
            for id, seq, value in zip(reply[1::3], reply[2::3], reply[3::3], strict=True)
        ]
        return rows[::-1] if self.newest else rows
