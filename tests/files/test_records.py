"""What the records of files say."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem import File, FileConflictError, FileEdit


def test_an_edit_names_the_revision_that_the_next_one_is_based_on(plain: Any) -> None:
    first = plain.files.write("/a.md", "one\n", resource_id="u")
    assert isinstance(first, FileEdit)
    second = plain.files.edit("/a.md", "one", "two", resource_id="u", base_revision=first.revision)
    found = plain.files.read("/a.md", resource_id="u")
    assert isinstance(found, File)
    assert (first.revision, second.revision, found.revision) == (1, 2, 2)


def test_a_conflict_says_what_helps_before_it_shows_the_places(plain: Any) -> None:
    plain.files.write("/a.md", "one\n", resource_id="u")
    plain.files.edit("/a.md", "one", "two", resource_id="u")
    with pytest.raises(FileConflictError) as caught:
        plain.files.write("/a.md", "three\n", resource_id="u", base_revision=1)
    told, _, places = str(caught.value).partition("\n")
    assert told.endswith(
        f"has changed in the same places, and is at revision 2 now, so nothing was written: {caught.value.remedy}"
    )
    assert places.index("now: two") < places.index("you: three")
    with pytest.raises(FileConflictError, match=r"'/b\.md' has changed since you read it, and does not exist"):
        plain.files.write("/b.md", "three\n", resource_id="u", base_revision=1)
