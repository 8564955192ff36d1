"""The temporary file in which an import keeps what it has checked and not written yet."""

from __future__ import annotations

import pickle
import tempfile
from typing import IO, TYPE_CHECKING

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem.users.records import Step

IN_MEMORY = 16 * 2**20  # bytes; more goes into a file without a name, which no other user can open


def staging_file() -> IO[bytes]:
    """Open the file; it is deleted when it is closed."""
    return tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)


def write_step(file: IO[bytes], step: Step) -> None:
    """Write a step at the end; `OptionError` when the disk is full."""
    try:
        pickle.dump(step, file, pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        raise OptionError(
            f"{tempfile.gettempdir()} cannot hold the records to import ({error})",
            remedy="set TMPDIR to a directory with enough space",
        ) from error


def read_steps(file: IO[bytes]) -> Iterator[Step]:
    """Yield all steps from the first."""
    file.seek(0)
    while True:
        try:
            step: Step = pickle.load(file)  # noqa: S301 - written by `write_step`
        except EOFError:
            return
        yield step
