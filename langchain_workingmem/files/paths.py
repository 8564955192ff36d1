"""Paths of files, and patterns of paths. Pure."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.errors import FilePathError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_PATH = 4096  # characters, and bytes in UTF-8
MAX_PATTERNS = 1000  # that one pattern with braces may stand for


def check_path(path: object, name: str = "path") -> str:
    """Return the path of a file in its normal form; `FilePathError` for what is none.

    Normal: absolute, single slashes, no "." and Unicode's form NFC, so that one name is one file.
    """
    found = check_directory(path, name)
    if found == "/" or str(path).endswith("/"):
        raise FilePathError(path, "names a directory", remedy=f"pass the path of a file as {name}, such as '/notes.md'")
    return found


@lru_cache(maxsize=4096)
def check_directory(path: object, name: str = "path") -> str:
    """Return a path that may be that of a directory, without a slash at its end; "/" is the root."""
    if not isinstance(path, str):
        raise FilePathError(path, f"is of type {type(path).__name__}", remedy=f"pass a str as {name}")
    if len(path) > MAX_PATH or len(path.encode(errors="surrogatepass")) > MAX_PATH:
        raise FilePathError(f"{path[:40]}...", f"is longer than {MAX_PATH:,} bytes", remedy="use a shorter one")
    if not path.startswith("/"):
        raise FilePathError(path, "is not absolute", remedy=f"begin it with a slash: {'/' + path!r}")
    if replace_hidden(path, lambda _: "\0") != path or any(sign in path for sign in "\0\t\n\r"):
        raise FilePathError(path, "holds control or hidden characters", remedy="leave them out")
    parts = [part for part in unicodedata.normalize("NFC", path).split("/") if part not in ("", ".")]
    if ".." in parts:
        raise FilePathError(path, "holds '..'", remedy="name the place itself, from the root on")
    return "/" + "/".join(parts)


def below(path: str) -> str:
    """Return what every path below a directory begins with."""
    return path if path == "/" else f"{path}/"


@lru_cache(maxsize=256)
def pattern_of(pattern: str, directory: str) -> tuple[str, Callable[[str], object]]:
    """Return what all paths begin with that a pattern may match below a directory, and what tells whether it matches one.

    Without a slash the pattern is for the last name, at any depth; else for the path below the directory, from its start. `*` and `?`
    stand for characters of a name, `**` for any directories, `[abc]` and `[!abc]` for one of some characters, `{a,b}` for one of
    some texts. A name that begins with a dot is matched only by a pattern that does.
    """
    if ".." in pattern.split("/"):
        raise FilePathError(pattern, "holds '..'", remedy="name the place itself")
    start, wholes = below(directory), []
    for one in _expanded(pattern):
        relative = one.lstrip("/")
        anchored = "/" in one
        wholes.append("".join(_regex(relative)) if anchored else f"(?:.*/)?{''.join(_regex(relative))}")
        if anchored and len(wholes) == 1:
            fixed = re.split(r"[*?\[]", relative)[0].rpartition("/")[0]
    whole = f"(?:{'|'.join(wholes)})"
    above = re.escape(below(directory.rpartition("/")[0] or "/"))  # of a file that is passed as the directory
    itself = f"(?={re.escape(directory)}\\Z){above}{whole}"
    matches = re.compile(f"{re.escape(start)}{whole}|{itself}", re.DOTALL).fullmatch
    if len(wholes) == 1 and "/" in pattern and fixed:
        return f"{start}{fixed}/", matches
    return start, matches


def _expanded(pattern: str) -> list[str]:
    """Expand braces."""
    found = [pattern]
    at = 0
    while at < len(found):
        one = found[at]
        if braces := _BRACES.search(one):
            found[at : at + 1] = [one[: braces.start()] + each + one[braces.end() :] for each in braces[1].split(",")]
        else:
            at += 1
        if len(found) > MAX_PATTERNS:
            raise FilePathError(pattern, f"stands for more than {MAX_PATTERNS:,} patterns", remedy="use fewer braces")
    return found


_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_NAME = r"(?!\.)[^/]*"  # no hidden one


def _regex(pattern: str) -> Iterator[str]:
    """Yield the parts of the regular expression of a pattern without braces."""
    parts = pattern.split("/")
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if part == "**":
            yield r"(?:(?!\.)[^/]+(?:/(?!\.)[^/]+)*)" if is_last else r"(?:(?!\.)[^/]+/)*"
            continue
        yield "" if part.startswith((".", "\\.")) else r"(?!\.)"
        yield from _name(part)
        if not is_last:
            yield "/"


def _name(part: str) -> Iterator[str]:
    at = 0
    while at < len(part):
        sign = part[at]
        at += 1
        if sign == "*":
            yield "[^/]*"
        elif sign == "?":
            yield "[^/]"
        elif sign == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] == "!"))) > 0:
            chosen = part[at:end]
            is_not = chosen.startswith(("!", "^"))
            inside = re.sub(r"([\\\[\]^])", r"\\\1", chosen[is_not:])
            yield f"(?!/)[{'^' * is_not}{inside}]"
            at = end + 1
        else:
            yield re.escape(sign)
