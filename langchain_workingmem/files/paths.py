"""Paths of files, and patterns of paths. Pure."""

from __future__ import annotations

import unicodedata
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.errors import FilePathError, OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MAX_PATH, MAX_NAMES = 4096, 256  # characters, and bytes in UTF-8; directories and file
MAX_PATTERN = 1024  # characters
MAX_PATTERNS, MAX_EXPANDED = 100, 4096  # that one with braces may stand for, and the characters of these


def check_path(path: object, name: str = "path") -> str:
    """Return the path of a file in its normal form; `FilePathError` for what is none.

    Normal: absolute, single slashes, no "." and Unicode's form NFC, so that one name is one file.
    """
    normal = check_directory(path, name)
    if normal == "/" or str(path).endswith("/"):
        raise FilePathError(path, "names a directory", remedy=f"pass the path of a file as {name}, such as '/notes.md'")
    return normal


def check_directory(path: object, name: str = "path") -> str:
    """Return a path that may be that of a directory, without a slash at its end; "/" is the root."""
    if not isinstance(path, str):
        raise FilePathError(path, f"is of type {type(path).__name__}", remedy=f"pass a str as {name}")
    return _normal(path)


@lru_cache(maxsize=4096)
def _normal(path: str) -> str:
    if not path.startswith("/"):
        raise FilePathError(path[:40], "is not absolute", remedy=f"begin it with a slash: {'/' + path[:40]!r}")
    too_long = FilePathError(f"{path[:40]}...", f"is longer than {MAX_PATH:,} bytes", remedy="use a shorter one")
    if len(path) > MAX_PATH:
        raise too_long
    if replace_hidden(path, lambda _: "\0") != path or any(sign in path for sign in "\0\t\n\r"):
        raise FilePathError(path, "holds control or hidden characters", remedy="leave them out")
    parts = [part for part in unicodedata.normalize("NFC", path).split("/") if part not in ("", ".")]
    if len(parts) > MAX_NAMES:
        raise FilePathError(path[:40], f"has more than {MAX_NAMES} names", remedy="use fewer directories")
    if ".." in parts:
        raise FilePathError(path, "holds '..'", remedy="name the place itself, from the root on")
    normal = "/" + "/".join(parts)
    if len(normal.encode()) > MAX_PATH:
        raise too_long
    return normal


def below(path: str) -> str:
    """Return what every path below a directory begins with."""
    return path if path == "/" else f"{path}/"


class Pattern:
    """Tells whether a path at or below a directory matches a pattern; `OptionError` without the extra `files`.

    Without a slash the pattern is for the last name, at any depth; else for the path below the directory, from its
    start. The time grows with pattern times path: wcmatch matches what stands between two `**`, where it fits first.
    """

    def __init__(self, pattern: str, directory: str) -> None:
        try:
            from bracex import ExpansionLimitException, expand
            from wcmatch import glob
        except ImportError as error:
            remedy = "pip install 'langchain-workingmem[files]'"
            raise OptionError(f"patterns of paths need wcmatch ({error})", remedy=remedy) from error

        if ".." in pattern.split("/"):
            raise FilePathError(pattern[:40], "holds '..'", remedy="name the place itself")
        if len(pattern) > MAX_PATTERN:
            raise FilePathError(f"{pattern[:40]}...", f"has more than {MAX_PATTERN:,} characters", remedy="use fewer")
        try:
            expanded = expand(unicodedata.normalize("NFC", pattern), keep_escapes=True, limit=MAX_PATTERNS) or [""]
            self.size = sum(map(len, expanded)) + 1
        except (ExpansionLimitException, RecursionError):
            self.size = MAX_EXPANDED + 2
        if self.size > MAX_EXPANDED + 1:
            problem = f"stands for more than {MAX_PATTERNS} patterns, or {MAX_EXPANDED:,} characters of them"
            raise FilePathError(pattern[:40], problem, remedy="use fewer braces")
        compiled = partial(glob.compile, flags=glob.FORCEUNIX)
        self._ways = [
            ("/" in branch, [(len(piece), compiled("/".join(piece)).match) for piece in _pieces(branch)])
            for branch in dict.fromkeys(expanded)
        ]
        self._directory, self._start = directory, len(below(directory))

    def __call__(self, path: str) -> bool:
        """Tell whether a path matches; a file may have been passed as the directory."""
        names = (path.rpartition("/")[2] if path == self._directory else path[self._start :]).split("/")
        return any(_matches(pieces, names if is_path else names[-1:]) for is_path, pieces in self._ways)


def _pieces(pattern: str) -> list[list[str]]:
    """Divide a pattern at each `**` into patterns of names."""
    names = pattern.lstrip("/").split("/")
    pieces: list[list[str]] = [[]]
    for name in [*names, "*"] if names[-1] == "**" else names:  # what it ends with is a file
        if name == "**":
            pieces.append([])
        else:
            pieces[-1].append(name)
    return pieces


def _matches(pieces: Sequence[tuple[int, Callable[[str], object]]], names: Sequence[str]) -> bool:
    """Tell whether the pieces match names in this order, with any names but hidden ones between them."""
    (count, first), *rest = pieces
    if len(names) < sum(number for number, _ in pieces) or (count and not first("/".join(names[:count]))):
        return False
    index = count
    if not rest:
        return index == len(names)
    *middle, (last, end) = rest
    for number, matches in middle:
        while number and not matches("/".join(names[index : index + number])):
            if index + number + last >= len(names) or names[index].startswith("."):
                return False
            index += 1
        index += number
    tail = len(names) - last
    fits = index <= tail and bool(end("/".join(names[tail:])))
    return fits and not any(name.startswith(".") for name in names[index:tail])
