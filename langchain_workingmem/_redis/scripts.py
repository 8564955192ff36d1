"""The Lua scripts: each is one atomic step within one hash tag. Its file names KEYS, ARGV and reply."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._engine.plan import SCRIPT_SOURCES
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from langchain_workingmem._engine.plan import Argument, Command

_PACKAGE = files("langchain_workingmem")
MOST_BYTES = 512 * 2**20  # of a command: Redis's limit of one value (proto-max-bulk-len)
_FLAGS = re.compile("((?:#![^\n]*\n)?)(.*)", re.DOTALL)  # Redis reads flags of a script only in its first line
_SIZED = (str, bytes)  # a union takes longer to ask
READING, CHANGING = ("common",), ("common", "derived/rows", "changing")  # the parts before a script


def count_bytes(arguments: Iterable[Argument]) -> int:
    """Return the bytes of the arguments, numbers left out."""
    return sum(len(one.encode()) if isinstance(one, str) else len(one) for one in arguments if isinstance(one, _SIZED))


@cache
def _source(name: str) -> str:
    room, _, file = name.rpartition("/")
    return (_PACKAGE / (room or "_redis") / "lua" / f"{file}.lua").read_text()


class Script:
    """A script, called by its digest. `name` and the `parts` before it are "room/file", or a file in `_redis/lua`.

    A file that begins with `#!lua flags=allow-oom` only frees memory, so a full server runs it, too.
    """

    def __init__(self, name: str, *parts: str) -> None:
        flags, own = _FLAGS.match(_source(name)).groups()  # type: ignore[union-attr]  # it matches any text
        self.name, self.source = name, "".join((flags, *map(_source, parts), own))
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        SCRIPT_SOURCES[self.sha] = self.source

    def call(self, keys: Sequence[str], *arguments: Argument) -> Command:
        """Build the command that runs the script; `OptionError` if it is larger than Redis takes."""
        # a bound first, as each character takes 4 bytes at most: for a turn 2 us instead of 12
        bound = 4 * sum([len(one) for one in arguments if isinstance(one, _SIZED)])
        if bound > MOST_BYTES and (size := count_bytes(arguments)) > MOST_BYTES:
            raise OptionError(
                f"this takes {size:,} bytes, one step {MOST_BYTES:,} at most",
                remedy="save less at a time, or smaller values",
            )
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)

    def on(self, keys: Sequence[str], /, *arguments: Argument, **head: Any) -> Command:
        """Build the call of a script over a thread; what is None is left out of its head."""
        given = {name: value for name, value in head.items() if value is not None}
        return self.call(keys, orjson.dumps(given), *arguments)


READ, PAGE = Script("read", *READING), Script("page", *READING)
COUNT = Script("count")
WRITE, DELETE, THREAD = (Script(name, *CHANGING) for name in ("write", "delete", "thread"))
