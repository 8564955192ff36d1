"""The Lua scripts: whatever must be atomic is one of them, and each stays within one hash tag."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_workingmem.plans.effects import Argument, Command

_FOLDER = files(__package__) / "lua"
_PRELUDE = (_FOLDER / "prelude.lua").read_text()
_SOURCES: dict[Argument, str] = {}


class Script:
    """One script, called by its digest; the file's header names its KEYS, ARGV and reply."""

    def __init__(self, name: str) -> None:
        source = _PRELUDE + (_FOLDER / f"{name}.lua").read_text()
        self.sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
        _SOURCES[self.sha] = source

    def call(self, keys: Sequence[str], *arguments: Argument) -> Command:
        """Build the command that runs the script."""
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


def as_eval(command: Command) -> Command:
    """Turn a call by digest into a call by source, for a server that does not know the script."""
    return ("EVAL", _SOURCES[command[1]], *command[2:])


CREATE = Script("create_thread")
CHANGE = Script("change_thread")
TRANSFER = Script("transfer")
WRITE = Script("write")
READ = Script("read")
WINDOWS = Script("windows")
DELETE = Script("delete")
RESTORE = Script("restore")
REMEMBER = Script("remember")
RESTORE_MEMORY = Script("restore_memory")
LIFT = Script("lift")
TITLE = Script("title")
