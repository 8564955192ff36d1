"""Options of files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_workingmem.checks import at_least, check_ttl

if TYPE_CHECKING:
    from datetime import timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """Limits of the files of one owner, as `memory.files` keeps them."""

    revisions: int = 10  # older revisions of a file that are kept beside the present one
    max_file_bytes: int = 2**20  # of one file
    max_bytes: int = 256 * 2**20  # of all files of an owner, with their revisions
    max_files: int = 10_000  # of an owner
    ttl: timedelta | None = (
        None  # from the last write of an owner until all of the owner's files expire; None: they stay
    )

    def __post_init__(self) -> None:
        at_least(self.revisions, 1, "revisions")
        for name in ("max_file_bytes", "max_bytes", "max_files"):
            at_least(getattr(self, name), 1, name)
        check_ttl(self.ttl)
