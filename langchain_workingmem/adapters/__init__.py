"""Files of `memory.files` for other agents: each adapter is a module of its own, and needs its package only then."""

from __future__ import annotations

import re
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

_STEP = 2**14  # characters
_RUN = re.compile(r"((?:\[U\+[0-9A-F]+ [^]]*\]){16})(?:\[U\+[0-9A-F]+ [^]]*\])+")


def named(text: str) -> str:
    """Return a text as a model reads it: characters that nobody sees are shown by name, 16 of a row; line ends stay."""
    shown = []
    for at in range(0, len(text), _STEP):  # a thread that computes lets others work only between two calls of C
        part = replace_hidden(text[at : at + _STEP], lambda one: one if one == "\r" else _name(one))
        shown.append(_RUN.sub(r"\1[and more of them]", part) if "[U+" in part else part)
    return "".join(shown)


def _name(one: str) -> str:
    return f"[U+{ord(one):04X} {unicodedata.name(one, 'CONTROL')}]"


class OfOwner:
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
        self._find_ids, self._by = finder(user_id, trust_client_ids=trust_client_ids), by

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
