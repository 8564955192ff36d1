"""What a single call may say about memory."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_workingmem import OptionError, PerCall
from langchain_workingmem.faces import limits_of


def told(given: Any) -> PerCall:
    return limits_of({"configurable": {"memory": given}})


def test_all_that_can_be_said() -> None:
    call = told({"read_only": True, "persist": False, "recall": False, "last_messages": 5})
    assert call == PerCall(read_only=True, persist=False, recall=False, last_messages=5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("yes", "is of type str: use a dict with some of read_only, persist, working_memory, recall, last_messages"),
        ({"readonly": True}, "unknown keys.*readonly.*read_only, persist, working_memory, recall, last_messages"),
        ({"read_only": 1}, "read_only.*True or False"),
        ({"recall": True}, "recall.*use False, or a dict"),
        ({"recall": {"user_id": "bob"}}, "recall.*unknown keys.*user_id.*top_k"),
        ({"last_messages": -1}, "last_messages"),
        ({"last_messages": True}, "last_messages"),
    ],
)
def test_what_is_wrong_is_refused(given: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        told(given)
