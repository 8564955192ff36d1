"""Paths of files in their normal form, and patterns of paths."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import FilePathError, Memory
from langchain_workingmem.files.paths import MAX_PATH, check_directory, check_path, pattern_of
from tests.helpers.examples import examples

ANN: dict[str, Any] = {"resource_id": "ann"}


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
    ],
)
def test_a_path_has_one_normal_form(path: str, normal: str) -> None:
    assert check_path(path) == normal
    assert check_path(normal) == normal
    assert len(path) == MAX_PATH or check_directory(f"{path}/") == normal


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "a",
            "a/b",
            "./a",
            "~",
            "C:\\a",
            "/..",
            "/a/../b",
            "/a/..",
            "/a\0",
            "/\0",
            "/a\nb",
            "/a\tb",
            "/a\r",
            "/\x7f",
            "/\x1b[0m",
        ),
        *("/\u202eevil", "/a\u200bb", "/\ud800", "/\U000e0041", "/" + "a" * MAX_PATH, "/" + "é" * (MAX_PATH // 2)),
        "/" + "\u0958" * 1000,  # its normal form is twice as long
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


@pytest.mark.parametrize("path", ["/", "/a/", "//", "/./"])
def test_a_file_is_not_named_as_a_directory(path: str) -> None:
    with pytest.raises(FilePathError, match="names a directory"):
        check_path(path)


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
        ("src/**/*.py", ["/src/a.py", "/src/x/y/a.py"], ["/a.py", "/srca.py", "/src/.x/a.py", "/x/src/a.py"]),
        ("/src/*.py", ["/src/a.py"], ["/src/x/a.py"]),
        ("src/**", ["/src/a", "/src/a/b"], ["/src", "/src/.a"]),
        ("**", ["/a", "/a/b"], ["/.a"]),
        ("**/a/**/b", ["/a/b", "/x/a/y/b", "/a/a/b"], ["/b", "/a"]),
        ("**/**/b", ["/b", "/x/b"], ["/bb"]),
        ("**/.h/**/c", ["/.h/c", "/x/.h/y/c"], ["/x/.i/.h/c"]),
        (".*", ["/.env", "/a/.env"], ["/env"]),
        ("a*b*c", ["/abc", "/aXbYc", "/abbcc"], ["/acb", "/ab", "/aXb/c"]),
        ("?", ["/a", "/é", "/*"], ["/ab", "/.", "/"]),
        ("[a-c]x", ["/ax", "/cx"], ["/dx", "/-x"]),
        ("[!a-c]x", ["/dx"], ["/ax", "/.x"]),
        ("[^a]x", ["/bx"], ["/ax"]),
        ("[]a]", ["/]", "/a"], ["/b"]),
        ("[!]a]", ["/b"], ["/]", "/a"]),
        ("[z-a]x", [], ["/zx", "/ax", "/-x"]),  # holds nothing
        ("[!z-a]x", ["/zx"], ["/x"]),
        ("[a\\-]", ["/a", "/\\", "/-"], ["/b"]),
        ("[&&]", ["/&"], ["/a"]),
        ("[", ["/["], ["/a"]),
        ("{a,b}/*.{md,txt}", ["/a/x.md", "/b/x.txt"], ["/c/x.md", "/a/x.py"]),
        ("{a,b{c,d}}", ["/a", "/bc", "/x/bd"], ["/b"]),
        ("{a}", ["/{a}"], ["/a"]),
        ("./a//b", ["/a/b"], ["/x/a/b"]),
        ("e\u0301", ["/é"], ["/e"]),
        ("", [], ["/a"]),
        ("/", [], ["/a"]),
        ("a.c", ["/a.c"], ["/abc"]),
        ("a\nb", [], ["/a"]),
    ],
)
def test_patterns_match_paths(pattern: str, matching: list[str], others: list[str]) -> None:
    for directory in ("/", "/here"):
        start, matches = pattern_of(pattern, directory)
        base = "" if directory == "/" else directory
        assert start.startswith(f"{base}/")
        assert [one for one in matching if not (f"{base}{one}".startswith(start) and matches(base + one))] == []
        assert [one for one in others if f"{base}{one}".startswith(start) and matches(base + one)] == []
        assert not base or not any(matches(f"/elsewhere{one}") for one in matching)


@pytest.mark.parametrize("pattern", ["../a", "a/../b", "x" * (MAX_PATH + 1), "{a,b}" * 12, "{" + "," * 2000 + "}"])
def test_a_pattern_that_cannot_be_is_a_typed_error(pattern: str) -> None:
    with pytest.raises(FilePathError):
        pattern_of(pattern, "/")


def test_only_what_is_below_the_fixed_part_of_a_pattern_is_read() -> None:
    assert pattern_of("/src/lib/*.py", "/")[0] == "/src/lib/"
    assert pattern_of("src/l*/a", "/x")[0] == "/x/src/"
    assert pattern_of("{a,b}/c", "/")[0] == pattern_of("*.py", "/")[0] == "/"


def test_a_pattern_takes_no_more_time_for_more_stars() -> None:
    began = time.process_time()
    for pattern, path in [("*a" * 30 + "*b", "/" + "a" * 3000), ("**/a/" * 30 + "**/b", "/" + "a/" * 1900 + "a")]:
        assert not pattern_of(pattern, "/")[1](path)
    assert time.process_time() - began < 2


def reference(pattern: list[str], parts: list[str]) -> bool:
    """Match level by level, by trying everything."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(parts) and not any(part.startswith(".") for part in parts)
        return reference(pattern[1:], parts) or (
            bool(parts) and not parts[0].startswith(".") and reference(pattern, parts[1:])
        )
    return bool(parts) and of_name(pattern[0], parts[0]) and reference(pattern[1:], parts[1:])


def of_name(pattern: str, name: str) -> bool:
    def tried(pattern: str, name: str) -> bool:
        if not pattern:
            return not name
        if pattern[0] == "*":
            return tried(pattern[1:], name) or (bool(name) and tried(pattern, name[1:]))
        return bool(name) and pattern[0] in ("?", name[0]) and tried(pattern[1:], name[1:])

    return (pattern.startswith(".") or not name.startswith(".")) and tried(pattern, name)


@examples(600)
@given(
    st.lists(st.sampled_from(["**", "*", "a", "a*", "*a*b", "?", ".a", ".*"]), min_size=2, max_size=5),
    st.lists(st.sampled_from(["a", "ab", "b", ".a", "aab"]), min_size=1, max_size=6),
)
def test_what_a_pattern_matches_is_what_trying_everything_finds(pattern: list[str], parts: list[str]) -> None:
    start, matches = pattern_of("/".join(pattern), "/")
    path = "/" + "/".join(parts)
    assert (path.startswith(start) and bool(matches(path))) == reference(pattern, parts)


def test_odd_names_are_names_and_no_patterns(plain: Memory) -> None:
    names = [
        "/*",
        "/[a]",
        "/a b",
        "/\\",
        "/?",
        "/{a,b}",
        "/^-",
        "/'\"",
        "/%s",
        "/é",
        "/日本",
        "/a:b",
        "/count",
        "/bytes",
    ]
    for name in names:
        plain.files.write(f"{name}/x", name, by="a/b c", **ANN)
    assert [info.path for info in plain.files.list("/", **ANN)] == sorted(names, key=str.encode)
    for name in names:
        assert plain.files.read(f"{name}/x", **ANN).content == name
        assert [hit.path for hit in plain.files.grep(name, path=name, **ANN)] == [f"{name}/x"]
    for number, name in enumerate(names, 1):
        assert plain.files.delete(name, purge=True, **ANN) == 1
        assert plain.files.usage(**ANN).files == len(names) - number
