"""The Lua scripts: each is one atomic step within one hash tag."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

from langchain_workingmem._engine.effects import SCRIPT_SOURCES
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_workingmem._engine.effects import Argument, Command

_PACKAGE = files("langchain_workingmem")
MOST_BYTES = 512 * 2**20  # of a command: Redis's limit of one value (proto-max-bulk-len)
STEP_BYTES = 64 * 2**20  # of a step that we may cut smaller


def count_bytes(arguments: Iterable[Argument]) -> int:
    """Return the bytes of the arguments, numbers left out."""
    return sum(map(_size, arguments))


def _size(argument: Argument) -> int:
    if isinstance(argument, bytes) or (isinstance(argument, str) and argument.isascii()):
        return len(argument)
    return len(argument.encode()) if isinstance(argument, str) else 0


# The parts before a script. Redis runs all of them each time, so a script has only those that it needs.
_COMMON = ("header", "prelude")
READS_LOG = ("observations/ranges", "observations/reading")
VIEW = ("header", *READS_LOG, "observations/view")
COVERAGE = (*_COMMON, *READS_LOG, "observations/view", "observations/log", "observations/coverage")
BRANCHES = (*COVERAGE, "said")
_SWEEP = (*_COMMON, "said", "trash")


def _source(name: str) -> str:
    room, _, file = name.rpartition("/")
    return (_PACKAGE / (room or "_redis") / "lua" / f"{file}.lua").read_text()


class Script:
    """A script, called by its digest; the header of its file names KEYS, ARGV and reply.

    `name` and the `parts` before it are "room/file", or a file in `_redis/lua`.
    """

    def __init__(self, name: str, *parts: str) -> None:
        source = "".join(map(_source, (*(parts or _COMMON), name)))
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        SCRIPT_SOURCES[self.sha] = source

    def call(self, keys: Sequence[str], *arguments: Argument) -> Command:
        """Build the command that runs the script; `OptionError` if it is larger than Redis takes."""
        size = count_bytes(arguments)
        if size > MOST_BYTES:
            raise OptionError(
                f"this takes {size:,} bytes, one step {MOST_BYTES:,} at most",
                remedy="save less at a time, or smaller values",
            )
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


def in_steps(rows: Iterable[list[Argument]]) -> Iterator[list[Argument]]:
    """Join the arguments of rows into steps of about STEP_BYTES at most; at least one step."""
    step: list[Argument] = []
    size = 0
    for row in rows:
        more = count_bytes(row)
        if step and size + more > STEP_BYTES:
            yield step
            step, size = [], 0
        step += row
        size += more
    yield step


CREATE = Script("create_thread")
DELETE = Script("delete", *BRANCHES, "trash")
SWEEP = Script("sweep", *_SWEEP)
