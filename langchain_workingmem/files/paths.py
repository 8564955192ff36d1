"""Paths of files, and patterns of paths. Pure."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.errors import FilePathError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_PATH = 4096  # characters, and bytes in UTF-8
MAX_PATTERNS = 100  # that one pattern with braces may stand for
MOST_STARS = 2  # `**` in a pattern


def check_path(path: object, name: str = "path") -> str:
    """Return the path of a file in its normal form; `FilePathError` for what is none.

    Normal: absolute, single slashes, no "." and Unicode's form NFC, so that one name is one file.
    """
    found = check_directory(path, name)
    if found == "/" or str(path).endswith("/"):
        raise FilePathError(path, "names a directory", remedy=f"pass the path of a file as {name}, such as '/notes.md'")
    return found


def check_directory(path: object, name: str = "path") -> str:
    """Return a path that may be that of a directory, without a slash at its end; "/" is the root."""
    if not isinstance(path, str):
        raise FilePathError(path, f"is of type {type(path).__name__}", remedy=f"pass a str as {name}")
    return _normal(path)


@lru_cache(maxsize=4096)
def _normal(path: str) -> str:
    if not path.startswith("/"):
        raise FilePathError(path[:40], "is not absolute", remedy=f"begin it with a slash: {'/' + path[:40]!r}")
    if len(path) > MAX_PATH:
        raise _too_long(path)
    if replace_hidden(path, lambda _: "\0") != path or any(sign in path for sign in "\0\t\n\r"):
        raise FilePathError(path, "holds control or hidden characters", remedy="leave them out")
    parts = [part for part in unicodedata.normalize("NFC", path).split("/") if part not in ("", ".")]
    if ".." in parts:
        raise FilePathError(path, "holds '..'", remedy="name the place itself, from the root on")
    found = "/" + "/".join(parts)
    if len(found.encode()) > MAX_PATH:
        raise _too_long(path)
    return found


def _too_long(path: str) -> FilePathError:
    return FilePathError(f"{path[:40]}...", f"is longer than {MAX_PATH:,} bytes", remedy="use a shorter one")


def below(path: str) -> str:
    """Return what every path below a directory begins with."""
    return path if path == "/" else f"{path}/"


def pattern_of(pattern: str, directory: str) -> Callable[[str], bool]:
    """Return what tells whether a path at or below a directory matches a pattern; `OptionError` without the extra `files`.

    Without a slash the pattern is for the last name, at any depth; else for the path below the directory, from its start.
    """
    try:
        from wcmatch import glob
    except ImportError as error:
        raise OptionError(
            f"patterns of paths need wcmatch ({error})", remedy="pip install 'langchain-workingmem[files]'"
        ) from error

    if ".." in pattern.split("/"):
        raise FilePathError(pattern, "holds '..'", remedy="name the place itself")
    if len(pattern) > MAX_PATH:
        raise _too_long(pattern)
    if pattern.count("**") > MOST_STARS:  # each one multiplies the time by the depth of a path
        raise FilePathError(pattern, f"has more than {MOST_STARS} `**`", remedy="use fewer")
    flags = glob.BRACE | glob.GLOBSTAR | glob.FORCEUNIX | (0 if "/" in pattern else glob.MATCHBASE)
    try:
        wanted = glob.compile(unicodedata.normalize("NFC", pattern).lstrip("/"), flags=flags, limit=MAX_PATTERNS)
    except Exception as error:  # wcmatch has no public name for it
        problem = f"stands for more than {MAX_PATTERNS} patterns"
        raise FilePathError(pattern, problem, remedy="use fewer braces") from error
    start, name = len(below(directory)), directory.rpartition("/")[2]  # a file may be passed as the directory
    return lambda path: wanted.match(name if path == directory else path[start:])
