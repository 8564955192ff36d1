"""Records in a notebook and in a terminal: readable, short, and whatever is in them is text."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import MemoryContext, Page
from langchain_workingmem._text.sending import Marks
from langchain_workingmem.display.pictures import clean, cut
from langchain_workingmem.models import Diagnosis, Finding
from tests.display.samples import (
    EMPTY,
    Seen,
    every_record,
    in_notebook,
    in_terminal,
    recalled,
    state,
    stored,
    thread,
)

TAGS = {"div", "span", "strong", "bdi", "pre", "table", "thead", "tbody", "tr", "th", "td"}
NASTY = [
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "[red]wrong[/red] [/] [link=https://evil.example]x[/link]",
    "\x1b[31mred\x1b[0m \x9b31m \x1b]8;;https://evil.example\x07x",
    "over\rwritten \u202edesrever \u2066x\u2069 \U000e0041 \x00",
]


seen = pytest.mark.parametrize("look", [in_notebook, in_terminal])
Look = Callable[[Any], str]


# ---------------------------------------------------------------------- nothing in a record acts


def assert_harmless(record: Any, known: set[tuple[str, str | None]]) -> None:
    html = record._repr_html_()
    html.encode()
    page = Seen(html)
    assert page.elements <= TAGS
    assert page.attributes <= known
    for text in (page.text, in_terminal(record)):
        for one in text:
            assert one in "\n\t\u200c\u200d\u00ad" or unicodedata.category(one) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}


def known_attributes() -> set[tuple[str, str | None]]:
    """Return the attributes of pictures that have nothing of the sort in them."""
    return set().union(*(Seen(record._repr_html_()).attributes for record in every_record("harmless")))


KNOWN = known_attributes()


@pytest.mark.parametrize("text", NASTY)
def test_text_makes_no_element_and_steers_no_terminal(text: str) -> None:
    for record in every_record(text):
        assert_harmless(record, KNOWN)


@given(st.text(st.characters() | st.sampled_from("<>&\"'[]/\\\x1b\x9b\r\n\u202e\ud800")))
def test_any_text_is_harmless(text: str) -> None:
    for record in every_record(text):
        assert_harmless(record, KNOWN)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\r\ntwo\tthree\n", "one\ntwo\tthree\n"),
        ("\u202e \u2028 \ud800 \U000e0041", "\\u202e \\u2028 \\ud800 \\ue0041"),
    ],
)
def test_signs_stand_for_what_would_act(text: str, shown: str) -> None:
    assert clean(text) == shown


# ---------------------------------------------------------------------- what is there to see


@seen
def test_a_recall_shows_hits_inside_their_windows(look: Look) -> None:
    text = look(recalled(HumanMessage("Where?"), AIMessage("Cortina"), HumanMessage("Thanks"), hit=1))
    assert "1 hit" in text
    rows = r"Trip\s*2026-05-17 09:30\s*user\s*Where\?\s*Trip\s*2026-05-17 09:31\s*assistant\s*Cortina\s*1\s*0\.71"
    assert re.search(rows, text)


@seen
def test_a_context_shows_its_parts_in_the_order_of_the_prompt(look: Look) -> None:
    said = HumanMessage("Which hut?", id="3")
    question = Marks(b"secret", "t", "u").with_memory(said, ["<recalled_messages>", "<working_memory>"])
    context = MemoryContext(
        messages=[HumanMessage("Hello", id="4"), AIMessage("Hi", id="5"), question],
        system=["<rules>"],
        recalled=recalled(HumanMessage("I like huts", id="1"), AIMessage("Noted", id="2")),
        working_memory=state("Has a dog.", 7),
        omitted=12,
    )
    text = look(context)
    facts = ["system blocks 1", "messages 3", "recalled 1 hit", "working memory revision 7", "left out 12 messages"]
    parts = ["System block 1 of 1", "<rules>", "Hello", "<recalled_messages>", "<working_memory>", "Which hut?"]
    places = [text.index(part) for part in (*facts, *parts)]
    assert places == sorted(places)


@seen
def test_working_memory_shows_text_revision_time_and_origin(look: Look) -> None:
    text = look(state('{"name": "Maya", "pets": ["Nougat"]}', 3))
    assert "revision 3 · updated 2026-05-17 09:30 UTC · by tool" in text
    assert re.search(r'\{\s*"name": "Maya",\s*\n\s*"pets": \[\s*\n\s*"Nougat"', text)


@seen
def test_a_diagnosis_shows_each_finding_and_what_helps(look: Look) -> None:
    findings = [
        Finding(check="search", level="ok", message="Search 2.10"),
        Finding(check="vectors", level="warning", message="3 messages lack vectors", remedy="run the thing"),
    ]
    text = look(Diagnosis(findings=findings))
    assert "Diagnosis: warning" in text
    assert re.search(r"ok\s*search\s*Search 2.10", text)
    assert re.search(r"warning\s*vectors\s*3 messages lack vectors\s*run the thing", text)


@seen
def test_pages_are_tables(look: Look) -> None:
    text = look(Page(items=[thread("Dolomites"), thread("Alps")], total=30, next_cursor="c"))
    assert "2 of 30 threads" in text
    assert "more pass next_cursor" in text
    assert text.index("Dolomites") < text.index("Alps")
    assert re.search(
        r"trip\s*5\s*2026-05-17 09:35\s*user\s*Hi", look(Page(items=[stored(HumanMessage("Hi"), 5)], total=1))
    )


@seen
def test_what_is_empty_says_so(look: Look) -> None:
    texts = [look(record) for record in EMPTY]
    assert "Nothing was recalled" in texts[0]
    assert "working memory off" in texts[1]
    assert "Working memory, empty" in texts[2]
    assert "(no title)" in texts[3]
    assert "Nothing on this page" in texts[4]


# ---------------------------------------------------------------------- messages in words


@seen
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (HumanMessage("Hi", name="Caroline"), r"user Caroline\s*Hi"),
        (
            AIMessage("", tool_calls=[{"name": "book", "args": {"place": "Zürich"}, "id": "1"}]),
            r'called book\({"place": "Zürich"}\)',
        ),
        (ToolMessage("booked", name="book", tool_call_id="1"), r"tool book\s*booked"),
        (HumanMessage([{"type": "image", "base64": "AAAA"}, "a dog"]), r"a dog\s*\[picture\]"),
        (HumanMessage(""), r"\[nothing\]"),
    ],
)
def test_a_message_is_put_into_words(look: Look, message: BaseMessage, said: str) -> None:
    text = look(Page(items=[stored(message)], total=1))
    assert re.search(said, text)
    assert "AAAA" not in text


@pytest.mark.parametrize(
    ("text", "characters", "lines", "shown"),
    [
        ("three little words", 13, 1, "three little … [6 more]"),
        ("one\ntwo\nthree", 99, 2, "one\ntwo … [6 more]"),
        ("", 1, 1, ""),
    ],
)
def test_a_cut_falls_between_words_and_says_what_is_missing(text: str, characters: int, lines: int, shown: str) -> None:
    assert cut(text, characters, lines) == shown


# ---------------------------------------------------------------------- what it costs


def test_notebooks_need_no_rich() -> None:
    code = "import sys; from langchain_workingmem import RecallResult as R; R()._repr_html_(); sys.exit('rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
