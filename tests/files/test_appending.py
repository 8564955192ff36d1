"""Lines at the end of a file: a log that several agents write."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from langchain_workingmem import FileMissingError, OptionError


@pytest.mark.both_faces
@pytest.mark.parametrize(
    ("before", "after", "line"), [("", "x\n", 1), ("a", "a\nx\n", 2), ("a\n", "a\nx\n", 2), ("a\n\n", "a\n\nx\n", 3)]
)
def test_text_goes_behind_the_last_line(plain: Any, before: str, after: str, line: int) -> None:
    plain.files.write("/log.md", before, resource_id="u")
    assert plain.files.insert("/log.md", -1, "x", resource_id="u").line == line
    assert plain.files.read("/log.md", resource_id="u").text == after


def test_ten_parallel_lines_are_ten_lines(plain: Any) -> None:
    plain.files.write("/log.md", "", resource_id="u")

    def append(number: int) -> None:
        plain.files.insert("/log.md", -1, f"{number}", resource_id="u")

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(append, range(10)))
    assert sorted(plain.files.read("/log.md", resource_id="u").text.split()) == [str(number) for number in range(10)]


def test_only_the_last_line_has_a_number_below_zero_and_no_file_is_made(plain: Any) -> None:
    with pytest.raises(OptionError, match="line=-2"):
        plain.files.insert("/log.md", -2, "x", resource_id="u")
    with pytest.raises(FileMissingError):
        plain.files.insert("/log.md", -1, "x", resource_id="u")
