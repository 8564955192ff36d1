"""What a writer wrote comes back byte for byte, whatever was written before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem._documents.formats import Format
from langchain_workingmem.keeping.values import Values
from tests.helpers.examples import examples
from tests.keeping.documents import JSON_FORMATS, TEXT_FORMATS, after_write, json_texts, line_texts


def check_round_trips(form: Format, texts: list[str]) -> None:
    values = Values()
    for at, text in enumerate(texts):
        values = after_write(form, values, text, said_at=10 + at)
        assert values.render(form) == text
        assert values.at(10 + at).render(form) == text


@examples(500)
@given(st.sampled_from(JSON_FORMATS), st.lists(json_texts, min_size=1, max_size=5))
def test_json_comes_back(form: Format, texts: list[str]) -> None:
    check_round_trips(form, texts)


@examples(500)
@given(st.sampled_from(TEXT_FORMATS), st.lists(line_texts, min_size=1, max_size=5))
def test_lines_come_back(form: Format, texts: list[str]) -> None:
    check_round_trips(form, texts)
