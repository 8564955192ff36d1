"""What the records of files say."""

from __future__ import annotations

from typing import Any

from langchain_workingmem import File, FileEdit


def test_an_edit_names_the_revision_that_the_next_one_is_based_on(plain: Any) -> None:
    first = plain.files.write("/a.md", "one\n", resource_id="u")
    assert isinstance(first, FileEdit)
    second = plain.files.edit("/a.md", "one", "two", resource_id="u", base_revision=first.revision)
    found = plain.files.read("/a.md", resource_id="u")
    assert isinstance(found, File)
    assert (first.revision, second.revision, found.revision) == (1, 2, 2)
