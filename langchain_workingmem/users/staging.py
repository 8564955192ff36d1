"""A temporary file for what an import has checked and not written yet."""

from __future__ import annotations

import pickle
import tempfile
from typing import TYPE_CHECKING, Self

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from langchain_workingmem.users.records import Step

IN_MEMORY = 16 * 2**20  # bytes; what is larger goes into a file that has no name and that nobody else can open


class StagedFile:
    """Steps in order: added at the end, then given from the first."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115 - it is its own context manager

    def append(self, step: Step) -> None:
        """Add a step; `OptionError` when the disk is full."""
        try:
            pickle.dump(step, self._file, pickle.HIGHEST_PROTOCOL)
        except OSError as error:
            raise OptionError(
                f"{tempfile.gettempdir()} cannot hold what is to be imported ({error})",
                remedy="set TMPDIR to a directory with room",
            ) from error

    def __iter__(self) -> Iterator[Step]:
        """Give all steps from the first."""
        self._file.seek(0)
        while True:
            try:
                step: Step = pickle.load(self._file)  # noqa: S301 - what `append` wrote
            except EOFError:
                return
            yield step

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete the file."""
        self._file.close()
