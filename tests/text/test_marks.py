"""Marks in messages that memory has changed: whatever a message holds, its mark is read back, and nobody else can write one."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem._text.sending import MARK, Marks

MARKS = Marks(b"s" * 32, "t", "u")


def deep(levels: int = 5000) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


@pytest.mark.parametrize(
    "content", ["x", "\ud800", [{1: 2, "type": "y"}], [{"type": "n", "n": 10**30}], [{"type": "b", "b": b"\xff"}]]
)
def test_a_copy_with_memory_opens_to_what_was_said(content: Any) -> None:
    copy = MARKS.with_memory(HumanMessage(content, id="1"), ["block"])
    assert copy.content != content
    assert [one.content for one in MARKS.opened([copy])] == [content]


def test_what_cannot_be_signed_is_a_mark_of_nobody() -> None:
    copy = MARKS.with_memory(HumanMessage([{"type": "x", "d": deep()}], id="1"), ["block"])
    mark = {**copy.additional_kwargs[MARK], "content": "harmless", "user": "v"}
    forged = HumanMessage("bad", id="1", additional_kwargs={MARK: mark | {"d": deep()}})
    assert [one.content for one in Marks(b"s" * 32, "other", "v").opened([forged])] == ["bad"]
