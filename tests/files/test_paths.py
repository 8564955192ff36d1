"""Paths of files in their normal form, and patterns of paths."""

from __future__ import annotations

import sys
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import Memory, OptionError
from langchain_workingmem.errors import FilePathError
from langchain_workingmem.files.paths import (
    MAX_EXPANDED,
    MAX_NAMES,
    MAX_PATH,
    MAX_PATTERN,
    MAX_PATTERNS,
    Pattern,
    check_directory,
    check_path,
)
from tests.helpers.examples import examples

ANN: dict[str, Any] = {"user_id": "ann"}


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/a/b.md", "/a/b.md"),
        ("//a///b.md", "/a/b.md"),
        ("/./a/./b.md", "/a/b.md"),
        ("/e\u0301.md", "/é.md"),
        ("/ a b /c", "/ a b /c"),
        ("/...", "/..."),
        ("/a*[b]?{c}\\", "/a*[b]?{c}\\"),
        ("/👩‍👩‍👧", "/👩‍👩‍👧"),
        ("/" + "a" * (MAX_PATH - 1), "/" + "a" * (MAX_PATH - 1)),
        ("/a" * MAX_NAMES, "/a" * MAX_NAMES),
    ],
)
def test_a_path_has_one_normal_form(path: str, normal: str) -> None:
    assert check_path(path) == normal
    assert check_path(normal) == normal
    if len(path) < MAX_PATH:
        assert check_directory(f"{path}/") == normal
        with pytest.raises(FilePathError, match="names a directory"):
            check_path(f"{path}/")


@pytest.mark.parametrize(
    "path",
    [
        *("", "a/b", "~", "/..", "/a/../b", "/a\0", "/a\nb", "/\x7f"),
        *("/\u202eevil", "/a\u200bb", "/\ud800", "/\U000e0041", "/" + "a" * MAX_PATH, "/" + "é" * (MAX_PATH // 2)),
        "/" + "\u0958" * 1000,  # its normal form is twice as long
        "/a" * (MAX_NAMES + 1),
        *(None, 1, b"/a", ["/a"], {"/a": 1}, {"/a"}),
    ],
    ids=ascii,
)
def test_what_is_no_path_is_a_typed_error(path: Any) -> None:
    for check in (check_path, check_directory):
        with pytest.raises(FilePathError) as caught:
            check(path)
        assert caught.value.remedy
        assert len(str(caught.value)) < 400 or len(path) < MAX_PATH


@examples(100)
@given(st.text(alphabet=st.sampled_from("/.a\u0301e *"), max_size=12))
def test_a_normal_form_is_its_own(text: str) -> None:
    try:
        found = check_directory(f"/{text}")
    except FilePathError:
        assert ".." in text
        return
    assert check_directory(found) == found
    assert ".." not in found.split("/")
    assert "//" not in found


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("*.py", ["/a.py", "/b/c.py", "/.git/c.py"], ["/a.pyc", "/.py", "/a.py/b"]),
        ("{a,b}/*.{md,txt}", ["/a/x.md", "/b/x.txt"], ["/c/x.md", "/a/x.py"]),
        ("[!a-c]?", ["/dx"], ["/ax", "/.x", "/d"]),
        ("e\u0301", ["/é"], ["/e"]),
        ("**", ["/a", "/a/b", "/.a/b"], ["/.a", "/a/.b"]),
        ("a\\*/**", ["/a*/b"], ["/ab/b"]),
        ("", [], ["/a"]),
    ],
)
def test_patterns_match_paths(pattern: str, matching: list[str], others: list[str]) -> None:
    for directory in ("/", "/here"):
        matches = Pattern(pattern, directory)
        base = "" if directory == "/" else directory
        assert [one for one in (*matching, *others) if matches(base + one)] == matching


def naive(pattern: list[str], names: list[str]) -> bool:
    """Match names by trying everything."""
    if not pattern:
        return not names
    if pattern[0] == "**":
        skips = bool(names) and not names[0].startswith(".") and naive(pattern, names[1:])
        return skips or naive(pattern[1:], names)
    return bool(names) and pattern[0] in ("*", names[0]) and naive_star(pattern, names)


def naive_star(pattern: list[str], names: list[str]) -> bool:
    return not (pattern[0] == "*" and names[0].startswith(".")) and naive(pattern[1:], names[1:])


@examples(500)
@given(
    st.lists(st.sampled_from(["a", "b", ".c", "*", "**"]), min_size=2, max_size=7),
    st.lists(st.sampled_from(["a", "b", ".c"]), min_size=1, max_size=7),
)
def test_what_stands_between_stars_matches_as_by_trying_everything(pattern: list[str], names: list[str]) -> None:
    wanted = [*pattern, "*"] if pattern[-1] == "**" else pattern  # what a pattern ends with is a file
    assert Pattern("/".join(pattern), "/")("/" + "/".join(names)) == naive(wanted, names)


def test_a_pattern_is_bounded(plain: Memory) -> None:
    assert Pattern("x" * MAX_PATTERN, "/").size > MAX_PATTERN
    assert Pattern("{a,b}" * 6 + "x" * 58, "/").size == MAX_EXPANDED + 1
    braces = ["{a,b}" * 7, f"{{1..{MAX_PATTERNS + 1}}}", "{a,b}" * 5 + "x" * (MAX_EXPANDED // 32), "{1..99999999}"]
    expected = dict.fromkeys(braces, r"stands for more than 100 patterns, or 4,096 characters.*fewer braces")
    for pattern, problem in {**expected, "{a,b}" * 600: "more than 1,024 characters", "../a": r"\.\."}.items():
        for call in (plain.files.glob, lambda pattern, **ids: plain.files.grep("x", glob=pattern, **ids)):
            with pytest.raises(FilePathError, match=problem):
                call(pattern, **ANN)


def test_a_pattern_needs_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wcmatch", None)
    with pytest.raises(OptionError, match="files"):
        Pattern("*", "/")


def test_a_pattern_takes_no_more_time_for_more_stars() -> None:
    began = time.process_time()
    for pattern, path in [("*a" * 30 + "*b", "/" + "a" * 3000), ("**/a/**/b", "/" + "a/" * 1900 + "a")]:
        assert not Pattern(pattern, "/")(path)
    assert time.process_time() - began < 2


def test_odd_names_are_names_and_no_patterns(plain: Memory) -> None:
    names = [f"/{name}" for name in ("*", "[a]", "a b", "\\", "?", "{a,b}", "^-", "'\"", "%s", "é", "日本", "a:b")]
    names += ["/count", "/bytes"]
    for name in names:
        plain.files.write(f"{name}/x", name, by="a/b c", **ANN)
    assert [info.path for info in plain.files.list("/", **ANN)] == sorted(names, key=str.encode)
    for name in names:
        assert plain.files.read(f"{name}/x", **ANN).content == name
        assert [hit.path for hit in plain.files.grep(name, path=name, **ANN)] == [f"{name}/x"]
    for number, name in enumerate(names, 1):
        assert plain.files.delete(name, purge=True, **ANN) == 1
        assert plain.files.usage(**ANN).files == len(names) - number
