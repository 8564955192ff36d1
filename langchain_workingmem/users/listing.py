"""The plan that lists users: the owners of the threads in the index."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem._redis.keys import decode, encode
from langchain_workingmem._redis.queries import aggregate, read_cursor, rows_of
from langchain_workingmem._text.clock import from_micros
from langchain_workingmem.checks import at_least, at_most
from langchain_workingmem.reports import UserPage, UserSummary
from langchain_workingmem.threads import CURSOR, search_threads

if TYPE_CHECKING:
    from langchain_workingmem._engine.plan import Argument, Plan
    from langchain_workingmem._redis.state import MemoryState

MOST = 10_000  # users of a page


def list_users(state: MemoryState, limit: int, cursor: str | None) -> Plan[UserPage]:
    """List the owners of threads, the one whose thread changed last first. One round trip.

    The cursor is the time and the id of the last user of a page, as that of `threads.list`.
    """
    at_least(limit, 1, "limit")
    at_most(limit, MOST, "limit")
    steps: list[Argument] = ["LOAD", 3, "@__key", "@user", "@count"]
    steps += ["FILTER", "exists(@__key)"]  # a thread that has just expired would be of no user
    steps += ["GROUPBY", 1, "@user", "REDUCE", "COUNT", 0, "AS", "threads"]
    steps += ["REDUCE", "SUM", 1, "@count", "AS", "messages", "REDUCE", "MAX", 1, "@updated_at", "AS", "updated"]
    if cursor is not None:
        time, last = read_cursor(cursor, CURSOR)
        edge = f"@updated < {int(time)} || (@updated == {int(time)} && @user > '{encode(decode(last))}')"
        steps += ["FILTER", edge]
    steps += ["SORTBY", 4, "@updated", "DESC", "@user", "ASC", "LIMIT", 0, limit + 1]
    (reply,) = yield from search_threads(state, aggregate(state.keys.threads_index, "*", *steps))
    rows = rows_of(reply)
    users = [
        UserSummary(
            user_id=decode(row[b"user"]),
            threads=int(row[b"threads"]),
            messages=int(row[b"messages"]),
            updated_at=from_micros(row[b"updated"]),
        )
        for row in rows[:limit]
    ]
    next_cursor = None
    if len(rows) > limit:
        next_cursor = f"{int(rows[limit - 1][b'updated'])},{encode(users[-1].user_id)}"
    return UserPage(users=users, next_cursor=next_cursor)
