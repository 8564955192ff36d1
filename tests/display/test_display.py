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

from langchain_workingmem import MemoryContext, Page, RecallResult
from langchain_workingmem._text.sending import Marks
from langchain_workingmem.display.pictures import clean, cut
from langchain_workingmem.models import Diagnosis, Finding
from tests.display.samples import Seen, every_record, in_notebook, in_terminal, recalled, state, stored, thread

TAGS = {"div", "span", "strong", "bdi", "pre", "table", "thead", "tbody", "tr", "th", "td"}
NASTY = [
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "[red]wrong[/red] [/] [link=https://evil.example]x[/link]",
    "\x1b[31mred\x1b[0m \x9b31m \x1b]8;;https://evil.example\x07x",
    "over\rwritten \u202edesrever \u2066x\u2069 \U000e0041 \x00",
]


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
FINDINGS = [
    Finding(check="search", level="ok", message="Search 2.10"),
    Finding(check="vectors", level="warning", message="3 messages lack vectors", remedy="run the thing"),
]
# what stands in the picture of a record, in this order
SHOWN: dict[str, tuple[Any, list[str]]] = {
    "a recall shows hits inside their windows": (
        recalled(HumanMessage("Where?"), AIMessage("Cortina"), HumanMessage("Thanks"), hit=1),
        [
            *(
                "1 hit",
                "Trip",
                "2026-05-17 09:30",
                "user",
                "Where?",
                "Trip",
                "2026-05-17 09:31",
                "assistant",
                "Cortina",
                "0.71",
            )
        ],
    ),
    "a context shows its parts in the order of the prompt": (
        CONTEXT,
        [*FACTS, "System block 1 of 1", "<rules>", "Hello", *BLOCKS, "Which hut?"],
    ),
    "working memory shows text, revision, time and origin": (
        state('{"name": "Maya", "pets": ["Nougat"]}', 3),
        ["revision 3 · updated 2026-05-17 09:30 UTC · by tool", '"name": "Maya",\n', '"Nougat"'],
    ),
    "a diagnosis shows each finding and what helps": (
        Diagnosis(findings=FINDINGS),
        [
            *(
                "Diagnosis: warning",
                "ok",
                "search",
                "Search 2.10",
                "warning",
                "vectors",
                "3 messages lack vectors",
                "run the thing",
            )
        ],
    ),
    "threads are a table": (
        Page(items=[thread("Dolomites"), thread("Alps")], total=30, next_cursor="c"),
        ["2 of 30 threads", "more pass next_cursor", "Dolomites", "Alps"],
    ),
    "messages are a table": (
        Page(items=[stored(HumanMessage("Hi"), 5)], total=1),
        ["trip", "5", "2026-05-17 09:35", "user", "Hi"],
    ),
    "an empty recall": (RecallResult(), ["Nothing was recalled"]),
    "an empty context": (MemoryContext(messages=[], system=[], recalled=RecallResult()), ["working memory off"]),
    "empty working memory": (state("", 0, updated_at=None, origin=None), ["Working memory, empty"]),
    "a thread without a title": (Page(items=[thread(title=None)], total=1), ["(no title)"]),
    "an empty page": (Page(items=[], total=0), ["Nothing on this page"]),
}


@pytest.mark.parametrize("look", [in_notebook, in_terminal])
@pytest.mark.parametrize(("record", "parts"), SHOWN.values(), ids=SHOWN)
def test_a_record_shows_what_is_in_it(look: Look, record: Any, parts: list[str]) -> None:
    text, at = look(record), 0
    for part in parts:
        at = text.find(part, at)
        assert at >= 0, (part, text)
        at += len(part)


BOOKING: Any = {"name": "book", "args": {"place": "Zürich"}, "id": "1"}


@pytest.mark.parametrize("look", [in_notebook, in_terminal])
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (HumanMessage("Hi", name="Caroline"), r"user Caroline\s*Hi"),
        (AIMessage("", tool_calls=[BOOKING]), r'called book\({"place": "Zürich"}\)'),
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
