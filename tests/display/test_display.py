"""Records in a notebook and in a terminal: readable, short, and whatever is in them is text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import MemoryContext, Page, RecallResult
from langchain_workingmem._text.sending import Marks
from langchain_workingmem.display.pictures import clean
from langchain_workingmem.models import Diagnosis, Finding
from tests.display.samples import Seen, every_record, in_notebook, in_terminal, recalled, state, thread

TAGS = {"div", "span", "strong", "bdi", "pre", "table", "thead", "tbody", "tr", "th", "td"}
Look = Callable[[Any], str]


# the attributes of pictures that have nothing of the sort in them
KNOWN = set().union(*(Seen(record._repr_html_()).attributes for record in every_record("harmless")))


# of the characters that format: joiners, single marks of direction, and marks around numbers and hieroglyphs
SEEN = re.compile("[\n\t\u00ad\u0600-\u08e2\u180e\u200c-\u200f\U000110bd\U000110cd\U00013430-\U0001345f]")


@example("<script>alert(1)</script></td></table><img src=x onerror=alert(1)>")
@example("[red]wrong[/red] [/] [link=https://evil.example]x[/link] \x1b]8;;https://evil.example\x07x")
@given(st.text(st.characters() | st.sampled_from("<>&\"'[]/\\\x1b\x9b\r\n\u202e\ud800")))
def test_any_text_is_harmless(text: str) -> None:
    for record in every_record(text):
        html = record._repr_html_()
        html.encode()
        page = Seen(html)
        assert page.elements <= TAGS
        assert page.attributes <= KNOWN
        for one in page.text + in_terminal(record):
            assert SEEN.match(one) or unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_signs_stand_for_what_would_act() -> None:
    assert clean("one\r\ntwo\tthree\n \u202e \ud800 \U000e0041") == "one\ntwo\tthree\n \\u202e \\ud800 \\ue0041"


QUESTION = HumanMessage("Which hut?", id="3")
BLOCKS = ["<recalled_messages>", "<working_memory>"]
CONTEXT = MemoryContext(
    messages=[
        HumanMessage("Hello", id="4"),
        AIMessage("Hi", id="5"),
        Marks(b"secret", "t", "u").with_memory(QUESTION, BLOCKS),
    ],
    system=["<rules>"],
    recalled=recalled(HumanMessage("I like huts", id="1"), AIMessage("Noted", id="2")),
    working_memory=state("Has a dog.", 7),
    omitted=12,
)
FACTS = ["system blocks 1", "messages 3", "recalled 1 hit", "working memory revision 7", "left out 12 messages"]
WARNING = Finding(check="vectors", level="warning", message="3 messages lack vectors", remedy="run the thing")
HIT = recalled(HumanMessage("Where?"), AIMessage("Cortina"), HumanMessage("Thanks"), hit=1)
# what stands in the picture of a record, in this order
SHOWN: list[tuple[Any, list[str]]] = [
    (HIT, ["1 hit", "Trip", "2026-05-17 09:30", "user", "Where?", "2026-05-17 09:31", "assistant", "Cortina", "0.71"]),
    (CONTEXT, [*FACTS, "System block 1 of 1", "<rules>", "Hello", *BLOCKS, "Which hut?"]),  # as in the prompt
    (state('{"name": "Maya"}', 3), ["revision 3 · updated 2026-05-17 09:30 UTC · by tool", '"name": "Maya"']),
    (Diagnosis(findings=[WARNING]), ["Diagnosis: warning", "vectors", "3 messages lack vectors", "run the thing"]),
    (Page(items=[thread("Alps"), thread(title=None)], total=30, next_cursor="c"), ["2 of 30 threads", "more pass next_cursor", "Alps", "(no title)"]),
    (RecallResult(), ["Nothing was recalled"]),
    (state("", 0, updated_at=None, origin=None), ["Working memory, empty"]),
    (Page(items=[], total=0), ["Nothing on this page"]),
]  # fmt: skip


@pytest.mark.parametrize("look", [in_notebook, in_terminal])
@pytest.mark.parametrize(("record", "parts"), SHOWN)
def test_a_record_shows_what_is_in_it(look: Look, record: Any, parts: list[str]) -> None:
    text, at = look(record), 0
    for part in parts:
        at = text.find(part, at)
        assert at >= 0, (part, text)
        at += len(part)
