"""Files of `memory.files` for other agents: each adapter is a module of its own, and needs its package only then."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from langchain_core.runnables.config import ensure_config

from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.errors import ReadOnlyError
from langchain_workingmem.faces import Owner, finder, limits_of, required_ids
from langchain_workingmem.files.operations import check_by

if TYPE_CHECKING:
    from langchain_workingmem.files import Files
    from langchain_workingmem.memory import Memory

MOST_NAMES = 100


def spell_hidden(text: str) -> str:
    """Return a text as a model reads it: of characters that nobody sees the first 100 by name; line ends stay."""
    budget = iter(range(MOST_NAMES))

    def name(char: str) -> str:
        if char == "\r":
            return char
        return "[hidden]" if next(budget, None) is None else f"[U+{ord(char):04X} {unicodedata.name(char, 'CONTROL')}]"

    return replace_hidden(text, name)


class FilesOfOwner:
    """Files of the owner that a program fixes, or of the user of the run. `by` is written into their revisions."""

    def __init__(
        self,
        memory: Memory,
        *,
        user_id: str | Owner | None = None,
        by: str | None = "agent",
        trust_client_ids: bool = False,
    ) -> None:
        check_by(by)
        self.files: Files = memory.files
        self._core = memory._core
        self._find_ids, self.by = finder(user_id, trust_client_ids=trust_client_ids), by

    @property
    def owner(self) -> str:
        """Return the owner: what the program fixes, else the user of the run, else its thread."""
        ids = self._find_ids(ensure_config())
        return ids.user_id if ids.user_id is not None else required_ids(ids)[1]

    @property
    def writer(self) -> str:
        """Return the owner of files that are to be changed; `ReadOnlyError` in a run that is read-only."""
        if limits_of(ensure_config()).read_only:
            raise ReadOnlyError("this run is read-only, so nothing was written", remedy="go on without it")
        return self.owner
