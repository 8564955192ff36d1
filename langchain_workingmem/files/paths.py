"""Paths of files, and patterns of paths. Pure."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from langchain_workingmem._text.unicode import replace_hidden
from langchain_workingmem.errors import FilePathError

if TYPE_CHECKING:
    from collections.abc import Callable

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


@lru_cache(maxsize=256)
def pattern_of(pattern: str, directory: str) -> tuple[str, Callable[[str], object]]:
    """Return what all paths begin with that a pattern may match below a directory, and what tells whether it matches one.

    Without a slash the pattern is for the last name, at any depth; else for the path below the directory, from its start. `*` and `?`
    stand for characters of a name, `**` for any directories, `[abc]` and `[!abc]` for one of some characters, `{a,b}` for one of
    some texts. A name that begins with a dot is matched only by a pattern that does.
    """
    if ".." in pattern.split("/"):
        raise FilePathError(pattern, "holds '..'", remedy="name the place itself")
    if len(pattern) > MAX_PATH:
        raise _too_long(pattern)
    start, wholes, fixed = below(directory), [], ""
    for one in _expanded(unicodedata.normalize("NFC", pattern)):
        relative = "/".join(part for part in one.split("/") if part not in ("", "."))
        is_anchored = "/" in one
        wholes.append(f"{'' if is_anchored else '(?:.*/)?'}{_regex(relative)}")
        if is_anchored:
            fixed = re.split(r"[*?\[]", relative)[0].rpartition("/")[0]
    whole = f"(?:{'|'.join(wholes)})"
    above = re.escape(below(directory.rpartition("/")[0] or "/"))  # of a file that is passed as the directory
    itself = f"(?={re.escape(directory)}\\Z){above}{whole}"
    matches = re.compile(f"{re.escape(start)}{whole}|{itself}", re.DOTALL).fullmatch
    return f"{start}{fixed}/" if len(wholes) == 1 and fixed else start, matches


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
_LEVEL = r"(?!\.)[^/]++/"  # no hidden one


def _regex(pattern: str) -> str:
    """Return the regular expression of a pattern without braces.

    Between two `**`, as between two `*` of a name, the first place that matches is taken for good, `(?>...)`: a later one could not
    match more, and to try all of them takes time that doubles with each further one.
    """
    if not pattern:
        return "(?!)"
    runs: list[list[str]] = [[]]
    for part in pattern.split("/"):
        if part == "**":
            runs += [] if len(runs) > 1 and not runs[-1] else [[]]
        else:
            runs[-1].append(("" if part.startswith(".") else r"(?!\.)") + _name(part))
    if len(runs) == 1:
        return "/".join(runs[0])
    first, *between, last = ["".join(f"{part}/" for part in run) for run in runs]
    jumps = "".join(f"(?>(?:{_LEVEL})*?{run})" for run in between)
    return f"{first}{jumps}(?:{_LEVEL})*" + (last.removesuffix("/") if last else _LEVEL.removesuffix("/"))


def _name(part: str) -> str:
    """Return the regular expression of a name, which is not empty."""
    pieces, at = [""], 0
    while at < len(part):
        sign = part[at]
        at += 1
        if sign == "*":
            pieces += [""] if pieces[-1] or len(pieces) == 1 else []
        elif sign == "?":
            pieces[-1] += "[^/]"
        elif sign == "[" and (end := part.find("]", at + 1 + (part[at : at + 1] in ("!", "^")))) > 0:
            pieces[-1] += _one_of(part[at:end])
            at = end + 1
        else:
            pieces[-1] += re.escape(sign)
    first, *others = pieces
    if not others:
        return first
    return first + "".join(f"(?>[^/]*?{piece})" for piece in others[:-1]) + f"[^/]*{others[-1]}"


def _one_of(chosen: str) -> str:
    """Return the regular expression of what stands in brackets."""
    is_not, inside, at = chosen.startswith(("!", "^")), "", 0
    chosen = chosen[is_not:]
    while at < len(chosen):
        low, high = chosen[at], chosen[at + 2 : at + 3] if chosen[at + 1 : at + 2] == "-" else ""
        at += 3 if high else 1
        if high:
            inside += f"{re.escape(low)}-{re.escape(high)}" if low <= high else ""
        else:
            inside += re.escape(low)
    if not inside:  # ranges that hold nothing
        return "[^/]" if is_not else "(?!)"
    return f"(?!/)[{'^' * is_not}{inside}]"
