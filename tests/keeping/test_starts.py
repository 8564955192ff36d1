"""Where values begin in a document, whatever it is."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._documents.formats import Format, JsonFormat
from langchain_workingmem.keeping.starts import starts_of
from langchain_workingmem.keeping.values import Values
from tests.helpers.examples import examples
from tests.keeping.documents import JSON_FORMATS, TEXT_FORMATS, after_write, json_texts, line_texts


def check_starts(form: Format, texts: list[str]) -> None:
    """Each value begins at its own line, key or item, and all before the next start was said at its time."""
    values = Values()
    for at, text in enumerate(texts):
        values = after_write(form, values, text, said_at=10 + at)
    text, present = texts[-1], values.present(form)
    starts = starts_of(form, text, present)
    assert {said for _, said in starts} == {held.since for held in present.values()}
    assert [at for at, _ in starts] == sorted({at for at, _ in starts})
    assert all(one[1] != other[1] for one, other in pairwise(starts))
    for at, _ in starts:
        if isinstance(form, JsonFormat) and "" not in present:
            json.JSONDecoder().raw_decode(text, at)  # a key, or an item
            assert text[:at] == "" or text[:at][-1] in "{[ "
        elif "" not in present:
            assert text[:at][-1:] in {"", "\n"}


@examples(90)
@given(st.sampled_from(JSON_FORMATS), st.lists(json_texts, min_size=1, max_size=4))
def test_values_of_json_begin_at_a_key_or_an_item(form: Format, texts: list[str]) -> None:
    check_starts(form, texts)


@examples(90)
@given(st.sampled_from(TEXT_FORMATS), st.lists(line_texts, min_size=1, max_size=4))
def test_values_of_a_text_begin_at_a_line(form: Format, texts: list[str]) -> None:
    check_starts(form, texts)
