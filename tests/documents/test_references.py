"""Documents that are too large."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, field_validator

from langchain_workingmem import WorkingMemoryOptions
from langchain_workingmem.errors import WorkingMemoryValidationError


def test_a_document_that_is_too_large_is_refused_before_it_is_checked() -> None:
    checked = []

    class Slow(BaseModel):
        text: str

        @field_validator("text")
        @classmethod
        def _slowly(cls, text: str) -> str:
            checked.append(len(text))
            return text

    form = WorkingMemoryOptions(schema=Slow, max_bytes=100).format
    with pytest.raises(WorkingMemoryValidationError, match="the limit is 100"):
        form.apply("", {"text": "x" * 100}, None)
    assert checked == []
    assert form.apply("", {"text": "x"}, None)
