"""The arguments of `context` that it hands to recall."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem import Memory


@pytest.mark.parametrize("given", [{"last_message": 3}, {"last_message": None, "recall": False}, {"bogus": ""}])
def test_a_misspelled_argument_is_a_type_error_whether_recall_is_on_or_off(
    memory: Memory, plain: Memory, given: dict[str, Any]
) -> None:
    for one in (memory, plain):
        with pytest.raises(TypeError, match=r"unexpected keyword arguments \['(last_message|bogus)'\].*use some of"):
            one.context("Hello", thread_id="t", user_id="u", **given)
