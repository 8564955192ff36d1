"""What a writer wrote comes back byte for byte, whatever was written before."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._documents.formats import Format
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem.keeping.values import Values
from tests.helpers.examples import examples
from tests.keeping.documents import JSON_FORMATS, TEXT_FORMATS, after_write, json_texts, line_texts


def check_round_trips(form: Format, texts: list[str]) -> None:
    values = Values()
    for at, text in enumerate(texts):
        values = after_write(form, values, text, said_at=10 + at)
        seen = _with_items_sorted if at and form.name == "json" else str
        assert seen(values.render(form)) == seen(text)


def _with_items_sorted(text: str) -> str:
    """Sort the keys inside lists: of an item that was written again in another order, the first order stays."""
    found = parse_json(text)
    return json.dumps(_sorted(found)) if json.dumps(found, ensure_ascii=False) == text else text


def _sorted(value: Any, *, is_item: bool = False) -> Any:
    if isinstance(value, list):
        return [_sorted(one, is_item=True) for one in value]
    if isinstance(value, dict):
        pairs = sorted(value.items()) if is_item else value.items()
        return {key: _sorted(one, is_item=is_item) for key, one in pairs}
    return value


@examples(200)
@given(st.sampled_from(JSON_FORMATS), st.lists(json_texts, min_size=1, max_size=5))
def test_json_comes_back(form: Format, texts: list[str]) -> None:
    check_round_trips(form, texts)


@examples(200)
@given(st.sampled_from(TEXT_FORMATS), st.lists(line_texts, min_size=1, max_size=5))
def test_lines_come_back(form: Format, texts: list[str]) -> None:
    check_round_trips(form, texts)
