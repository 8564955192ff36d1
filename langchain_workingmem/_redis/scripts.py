"""The Lua scripts: each is one atomic step within one hash tag."""

from __future__ import annotations

import hashlib
import re
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING

from langchain_workingmem._engine.plan import SCRIPT_SOURCES
from langchain_workingmem._redis.keys import covered_key
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from langchain_workingmem._engine.plan import Argument, Command

_PACKAGE = files("langchain_workingmem")
NOT_WATCHED = (
    "//"  # the argument of a larger variant for a process that does not use the room (observations/lua/hooks.lua)
)
MOST_BYTES = 512 * 2**20  # of a command: Redis's limit of one value (proto-max-bulk-len)
STEP_BYTES = 64 * 2**20  # of a step that we may cut smaller
_FLAGS = re.compile("((?:#![^\n]*\n)?)(.*)", re.DOTALL)  # Redis reads flags of a script only in its first line
_SIZED = (str, bytes)  # a union takes longer to ask


def count_bytes(arguments: Iterable[Argument]) -> int:
    """Return the bytes of the arguments, numbers left out."""
    return sum(map(_size, arguments))


def _size(argument: Argument) -> int:
    if isinstance(argument, bytes) or (isinstance(argument, str) and argument.isascii()):
        return len(argument)
    return len(argument.encode()) if isinstance(argument, str) else 0


# The parts before a script. Redis runs all of them each time, so a script has only those that it needs.
COMMON = ("header", "prelude")
# What the variant of a script has besides that tells a room what changes: set by that room when it is loaded
TELLING: list[str] = []
_SCRIPTS: dict[Argument, Script] = {}  # by digest and by source
# The threads, by their first key, whose changes have to be told, as this process has met them
_COVERED: dict[str, None] = {}
_PLAIN = 11  # keys of a thread that a plain script gets
_MOST_COVERED = 10_000  # that are remembered


@cache  # most scripts begin with the same parts
def _source(name: str) -> str:
    room, _, file = name.rpartition("/")
    return (_PACKAGE / (room or "_redis") / "lua" / f"{file}.lua").read_text()


class Script:
    """A script, called by its digest; the header of its file names KEYS, ARGV and reply.

    `name` and the `parts` before it are "room/file", or a file in `_redis/lua`. A script may have larger variants for what few
    calls need: it answers WMBRANCH (`branch`) or WMCOVERED (`covered`) and writes nothing, and the same call is sent to the
    variant. A file that begins with `#!lua flags=allow-oom` only frees memory, so a full server runs it, too.
    """

    def __init__(self, name: str, *parts: str, branch: Script | None = None) -> None:
        self.name, self.parts, self.branch = name, parts or COMMON, branch
        flags, own = _FLAGS.match(_source(name)).groups()  # type: ignore[union-attr]  # it matches any text
        self.source = "".join((flags, *map(_source, self.parts), own))
        self._tells = "write_refusal(" in _source(name) or "memory_refusal(" in _source(name)
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        SCRIPT_SOURCES[self.sha] = self.source
        _SCRIPTS[self.sha] = _SCRIPTS[self.source] = self

    @cached_property
    def covered(self) -> Script:
        """Return the variant that tells a room what changes."""
        return (self.branch or self).with_parts(*TELLING, after="prelude")

    def with_parts(self, *parts: str, after: str) -> Script:
        """Return a variant with more parts."""
        at = self.parts.index(after) + 1
        return Script(self.name, *self.parts[:at], *parts, *self.parts[at:])

    def call(self, keys: Sequence[str], *arguments: Argument) -> Command:
        """Build the command that runs the script; `OptionError` if it is larger than Redis takes."""
        # a bound first, as each character takes 4 bytes at most: for a turn 2 us instead of 12
        bound = 4 * sum([len(one) for one in arguments if isinstance(one, _SIZED)])
        if bound > MOST_BYTES and (size := count_bytes(arguments)) > MOST_BYTES:
            raise OptionError(
                f"this takes {size:,} bytes, one step {MOST_BYTES:,} at most",
                remedy="save less at a time, or smaller values",
            )
        command = ("EVALSHA", self.sha, len(keys), *keys, *arguments)
        return as_told(command) if keys and keys[0] in _COVERED and self._tells and len(keys) == _PLAIN else command


def as_branch(command: Command) -> Command:
    """Return the call of the variant that compares messages with the thread."""
    script = _SCRIPTS[command[1]]
    return ("EVALSHA", (script.branch or script).sha, *command[2:])


def as_told(command: Command, told: str = NOT_WATCHED) -> Command:
    """Return the call of the variant that tells a room what changes: it gets one key and one argument more."""
    _, script, count, *rest = command
    if int(count) > _PLAIN:  # it is one already
        return (*command[:-1], told)
    keys, arguments = rest[:_PLAIN], rest[_PLAIN:]
    thread = str(keys[0])
    return ("EVALSHA", _SCRIPTS[script].covered.sha, _PLAIN + 1, *keys, covered_key(thread), *arguments, told)


def as_covered(command: Command) -> Command:
    """Return the same where the script has answered WMCOVERED, and remember the thread."""
    note_covered(str(command[3]))
    return as_told(command)


def note_covered(key: str) -> None:
    """Remember that changes of a thread, by its first key, have to be told: then nothing is sent twice."""
    if len(_COVERED) >= _MOST_COVERED:
        _COVERED.clear()
    _COVERED[key] = None


# By the code of a refusal which says that nothing was done: how the command is changed before it is sent again
RESEND: dict[str, Callable[[Command], Command]] = {"WMBRANCH": as_branch}


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
DELETE = Script("delete", *COMMON, "said", "trash")
SWEEP = Script("sweep", *COMMON, "said", "supersede", "trash")
