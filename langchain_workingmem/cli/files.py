"""Files that commands read and write."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from langchain_workingmem.errors import OptionError, WorkingMemError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def parsed(text: str, name: str) -> Any:
    """Read JSON; `name` is its source, for errors."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{name} is not JSON ({error})") from error


def parsed_lines(lines: Iterable[str], name: str) -> Iterator[Any]:
    """Read JSON lines."""
    with _decoded(name):
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield parsed(line, f"{name}, line {number}")


@contextmanager
def reading(name: str) -> Iterator[TextIO]:
    """Open a file to read, gzipped if its name ends in .gz; - is standard input."""
    with _usable(name):
        opened = gzip.open if name.endswith(".gz") else open
        file = sys.stdin if name == "-" else cast("TextIO", opened(Path(name).expanduser(), "rt", encoding="utf-8-sig"))
    try:
        with _decoded(name):
            yield file
    finally:
        if file is not sys.stdin:
            file.close()


@contextmanager
def writing(path: Path | None) -> Iterator[TextIO]:
    """Open a file to write. It replaces an older one when it is complete."""
    if path is None:
        yield sys.stdout
        return
    part = path.with_name(f"{path.name}.part") if path.is_file() or not path.exists() else path
    try:
        with _usable(path):
            with part.open("w", encoding="utf-8") as file:
                yield file
            part.replace(path)
    finally:
        if part != path:
            part.unlink(missing_ok=True)


@contextmanager
def _decoded(name: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        why = f"{error.reason} at byte {error.start}"
        raise OptionError(f"{name} is not UTF-8 ({why}): convert it, for example with iconv") from error
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise OptionError(f"{name} is not a complete gzip file ({error}): copy it again") from error


@contextmanager
def _usable(name: object) -> Iterator[None]:
    try:
        yield
    except WorkingMemError:  # errors of Redis, some of which are OSErrors
        raise
    except OSError as error:
        raise OptionError(f"{name} cannot be used: {error.strerror or error}") from error
