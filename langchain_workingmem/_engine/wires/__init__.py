"""Pools of our own clients, which send commands with few steps between hiredis and the socket.

redis-py makes a connection, logs in, and connects again where a connection that was idle is closed. But what its pool, its
connections and their parsers do around every command, for callers of all kinds, costs more than the exchange itself. Processor
time of one exchange of four commands with 5 KB: sync 47 us through redis-py, 25 here; async 150 and 34; of 64 tasks at once 95
and 14 each, and the server needs 8 instead of 14. Borrowed clients, Sentinels, RESP3 and health checks keep redis-py's way.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any, cast

import hiredis
from redis._parsers import BaseParser
from redis.exceptions import InvalidResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.effects import Command

MISSING = object()  # what a reader returns if a reply is not there yet, or not whole
DECODED = False  # whether a reader gives text: vectors are none
CLOSED, TIMEOUT = "Connection closed by server.", "Timeout reading from socket"
BUFFER = 2**16  # bytes that are read at once: a reader moves what is left of them after each reply
_JOINED = 2**16  # bytes up to which commands are joined for one write: a copy costs less than a call


def is_direct(options: Mapping[str, Any]) -> bool:
    """Return whether connections with these options do nothing around a command that redis-py would have to do."""
    return (
        hasattr(select, "poll")  # not on Windows
        and options.get("protocol") in {2, "2"}
        and bool(options.get("socket_timeout"))
        and not options.get("health_check_interval")
        and options.get("encoding", "utf-8") == "utf-8"
        and options.get("encoding_errors", "strict") == "strict"
    )


def new_reader() -> Any:
    """Make a reader of replies that has the errors of redis-py; `gets(DECODED)` returns bytes."""
    return hiredis.Reader(
        protocolError=InvalidResponse,
        replyError=BaseParser.parse_error,
        notEnoughData=MISSING,
    )


def pack(connection: Any, commands: Sequence[Command]) -> Sequence[bytes]:
    """Encode commands as redis-py does, whose own way to the same function of hiredis takes three times as long."""
    try:
        packed = [hiredis.pack_command(command) for command in commands]  # type: ignore[arg-type]  # of any length
    except TypeError:  # a bytearray, which redis-py converts, or no value at all, which it names
        return cast("Sequence[bytes]", connection.pack_commands(commands))
    return [b"".join(packed)] if sum(map(len, packed)) < _JOINED else packed
