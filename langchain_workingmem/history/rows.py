"""The arguments and the reply of `read.lua`, which reads stored messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.plan import compute
from langchain_workingmem._redis.codec import decode_message, to_micros
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem.checks import check_roles
from langchain_workingmem.history.references import rows_with_media

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import StoredMessage

READ = Script("history/read")


def read_rows(reply: Sequence[Any], thread_id: str) -> list[StoredMessage]:
    """Decode messages that a script returns as id, seq, value, id, ..."""
    columns = (reply[start::3] for start in range(3))
    return [decode_message(id, seq, value, thread_id) for id, seq, value in zip(*columns, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSelection:
    """Selects messages of a thread; the defaults select all of them, oldest first."""

    limit: int | None = None
    newest: bool = False  # the last ones, read backwards
    before: str | None = None  # message ids, exclusive
    after: str | None = None
    above: int | None = None  # sequence numbers, exclusive: where a page begins
    below: int | None = None
    since: int | None = None  # microseconds, inclusive
    until: int | None = None
    roles: tuple[str, ...] = ()
    count: bool = False  # return the total as well
    times: bool = False  # return only the times of the messages

    @classmethod
    def of(
        cls,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        roles: Sequence[str] | None = None,
        **rest: Any,
    ) -> MessageSelection:
        """Check and convert times and roles."""
        return cls(
            since=None if since is None else to_micros(since),
            until=None if until is None else to_micros(until),
            roles=() if roles is None else check_roles(roles),
            **rest,
        )

    def arguments(self) -> list[str | int]:
        """Return the arguments of `read.lua`."""
        found: list[str | int] = []
        for name in self.__slots__:
            value = getattr(self, name)
            if name == "roles":
                value = f",{','.join(value)}," if value else None
            if value is not None and value is not False:
                found += [name, value if isinstance(value, str) else int(value)]
        return found

    def reading(self, state: MemoryState, reply: list[Any], thread_id: str) -> Plan[list[StoredMessage]]:
        """Decode the reply as `read` does, with media; a long one does not hold up an event loop."""
        rows = yield from self.decoding(reply, thread_id)
        return (yield from rows_with_media(state, rows, reply[3::3]))

    def decoding(self, reply: list[Any], thread_id: str) -> Plan[list[StoredMessage]]:
        """Decode the reply without media, which are references then."""
        return compute(partial(self.read, reply, thread_id), sum(map(len, reply[3::3])))

    def read(self, reply: list[Any], thread_id: str) -> list[StoredMessage]:
        """Decode the messages of the reply, oldest first, without media."""
        rows = read_rows(reply[1:], thread_id)
        return rows[::-1] if self.newest else rows
