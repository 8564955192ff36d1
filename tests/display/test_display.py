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

from langchain_workingmem import (
    Diagnosis,
    Finding,
    MemoryContext,
    Page,
    RecallHit,
    RecallResult,
)
from langchain_workingmem._text.copies import ORIGINAL, with_memory
from langchain_workingmem.display.safe import clean, cut
from tests.display.samples import (
    AT,
    EMPTY,
    Seen,
    every_record,
    in_notebook,
    in_terminal,
    recalled,
    state,
    stored,
    thread,
    value,
)

TAGS = {"div", "span", "strong", "bdi", "pre", "ins", "del", "table", "thead", "tbody", "tr", "th", "td"}
NASTY = [
    "<script>alert(1)</script>",
    "</td></table><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)' style=\"position:fixed",
    "<a href='javascript:alert(1)'>click</a>",
    "<!-- ]]> &lt;b&gt; &#60;i&#62;",
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
    records = [*every_record("harmless"), state("a").diff(state("b", 0)), state("a\n" * 999).diff(state("", 0))]
    return set().union(*(Seen(record._repr_html_()).attributes for record in records))


KNOWN = known_attributes()


def test_attributes_are_styles_and_directions_without_addresses() -> None:
    assert {name for name, _ in KNOWN} == {"style", "dir"}
    assert not any(re.search(r"url|position|prefers", value or "") for _, value in KNOWN)


@pytest.mark.parametrize("text", NASTY)
def test_text_makes_no_element_and_steers_no_terminal(text: str) -> None:
    for record in every_record(text):
        assert_harmless(record, KNOWN)


@given(st.text(st.characters() | st.sampled_from("<>&\"'[]/\\\x1b\x9b\r\n\u202e\ud800")))
def test_any_text_is_harmless(text: str) -> None:
    for record in every_record(text):
        assert_harmless(record, KNOWN)


@given(st.recursive(st.none() | st.floats() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_any_metadata_and_arguments_are_shown(value: Any) -> None:
    call = AIMessage("", tool_calls=[{"name": "f", "args": {"x": value}, "id": "1"}])
    for record in (thread(metadata={"x": value}), Page(items=[stored(call)], total=1)):
        assert "x" in in_notebook(record)
        assert "x" in in_terminal(record)


@seen
def test_metadata_that_is_not_json_is_shown_all_the_same(look: Look) -> None:
    endless: dict[Any, Any] = {("a", 1): AT}
    endless["self"] = endless
    assert "('a', 1)" in look(thread(metadata=endless))


@seen
def test_metadata_of_any_depth_is_shown(look: Look) -> None:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    assert "{'deep': [[[[[" in look(thread(metadata={"deep": deep}))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Grüße, 漢字, 👩‍👩‍👧, co\u00adop", "plain, Grüße, 漢字, 👩‍👩‍👧, co\u00adop"),
        ("one\r\ntwo\tthree\n", "one\ntwo\tthree\n"),
        ("\x1b[31m \r \x7f \x9b", "␛[31m ␍ \\x7f \\x9b"),
        ("\u202e \u2028 \ud800 \U000e0041", "\\u202e \\u2028 \\ud800 \\ue0041"),
    ],
)
def test_signs_stand_for_what_would_act(text: str, shown: str) -> None:
    assert clean(text) == shown


# ---------------------------------------------------------------------- what is there to see


@seen
def test_working_memory_shows_each_value_with_its_day_and_sources(look: Look) -> None:
    kept = {
        "/city": (
            value("/city", "Lisbon", origin="keeper", sources=[("t", "m1"), ("t", "m2")]),
            value("/city", "Bern"),
        ),
        "/age": (value("/age", 41, origin="person", sources=[]),),
        "/job": (value("/job", is_set=False),),
    }
    text = "".join(look(state("text", timeline=kept)).partition("Values")[2].split())
    assert text == "pathvaluesince(UTC)bysources/cityLisbon2026-05-1709:30keeper2/age412026-05-1709:30person0"


@seen
def test_a_value_names_its_messages(look: Look) -> None:
    text = look(value("/city", "Lisbon", sources=[("trip", "m1"), ("chat", "m2")], until=AT))
    for word in ("/city", "Lisbon", "m1 in trip, m2 in chat", "until (UTC)"):
        assert word in text
    assert "(nothing)" in look(value("/city", is_set=False))


@seen
def test_many_values_are_shortened(look: Look) -> None:
    kept = {f"/f{number}": (value(f"/f{number}", number),) for number in range(250)}
    text = look(state("text", timeline=kept))
    assert "Values (of 250)" in text
    assert "/f199" in text
    assert "/f200" not in text


@seen
def test_a_recall_shows_hits_inside_their_windows(look: Look) -> None:
    found = recalled(HumanMessage("Where?"), AIMessage("Cortina"), HumanMessage("Thanks"), hit=1)
    text = look(found)
    assert "1 hit in 1 thread" in text
    assert "Trip (trip)" in text
    assert re.search(r"2026-05-17 09:30\s*user\s*Where\?[\s▸]*2026-05-17 09:31\s*assistant\s*Cortina\s*1\s*0\.71", text)


def test_a_hit_stands_out() -> None:
    found = recalled(HumanMessage("Where?"), AIMessage("Cortina"), HumanMessage("Thanks"), hit=1)
    assert re.findall("<strong>(.*?)</strong>", found._repr_html_()) == ["Cortina"]
    assert [line.split()[-3] for line in in_terminal(found).splitlines() if line.startswith("▸")] == ["Cortina"]


@seen
def test_the_thread_of_the_best_hit_comes_first(look: Look) -> None:
    old, best = (
        recalled(HumanMessage("old", id="1"), thread_id="a"),
        recalled(HumanMessage("best", id="1"), thread_id="b"),
    )
    text = look(RecallResult(hits=[*best.hits, *old.hits], rows=[*old.rows, *best.rows]))
    assert "2 hits in 2 threads" in text
    assert text.index("best") < text.index("old")


@seen
def test_a_gap_stands_between_two_windows_of_a_thread(look: Look) -> None:
    found = recalled(*(HumanMessage(text) for text in ("one", "two", "three", "four")))
    first, second, _, fourth = found.rows
    text = look(RecallResult(hits=found.hits, rows=[first, second, fourth]))
    assert text.count("⋯") == 1
    assert text.index("two") < text.index("⋯") < text.index("four")
    assert "⋯" not in look(found)


@seen
def test_a_hit_without_its_row_is_shown_and_one_of_words_only_says_so(look: Look) -> None:
    (hit,) = recalled(HumanMessage("Cortina")).hits
    text = look(
        RecallResult(hits=[RecallHit(**{name: getattr(hit, name) for name in hit.__slots__} | {"similarity": 0})])
    )
    assert re.search(r"user\s*Cortina\s*1\s*words only", text)


@seen
def test_a_context_shows_its_parts_in_the_order_of_the_prompt(look: Look) -> None:
    found = recalled(HumanMessage("I like huts", id="1"), AIMessage("Noted", id="2"))
    question = with_memory(HumanMessage("Which hut?", id="3"), ["<recalled_messages>", "<working_memory>"])
    context = MemoryContext(
        messages=[HumanMessage("Hello", id="4"), AIMessage("Hi", id="5"), question],
        system=["<rules>"],
        recalled=found,
        working_memory=state("Has a dog.", 7),
        omitted=12,
    )
    text = look(context)
    facts = ["system blocks 1", "messages 3", "recalled 1 hit", "working memory revision 7", "left out 12 messages"]
    parts = [
        "System block 1 of 1",
        "<rules>",
        "Hello",
        "Which hut?",
        "In front of the question",
        "<recalled_messages>",
        "<working_memory>",
        "1 hit in",
        "I like huts",
        "0.71",
    ]
    places = [text.index(part) for part in (*facts, *parts, "Has a dog.")]
    assert places == sorted(places)


@seen
def test_a_question_is_shown_without_what_memory_put_in_front_of_it(look: Look) -> None:
    blocks: list[str | dict[str, Any]] = [{"type": "text", "text": "Which hut?"}]
    for content in ("Which hut?", blocks):
        messages: list[BaseMessage] = [with_memory(HumanMessage(content), ["Has a dog."])]
        text = look(MemoryContext(messages=messages, system=[], recalled=RecallResult()))
        assert text.count("Which hut?") == 1
        assert text.count("Has a dog.") == 1


@seen
@pytest.mark.parametrize("original", [7, None, {"a": 1}])
def test_an_original_that_memory_did_not_write_is_ignored(look: Look, original: Any) -> None:
    message = HumanMessage("Which hut?", additional_kwargs={ORIGINAL: original})
    assert "Which hut?" in look(MemoryContext(messages=[message], system=[], recalled=RecallResult()))


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
def test_a_thread_shows_all_that_is_known_of_it(look: Look) -> None:
    text = look(thread(title="Dolomites", id="t1", resource_id="maya", metadata={"team": 7}, source_id="t0"))
    for part in (
        "Dolomites",
        "id t1",
        "resource maya",
        "messages 1,234",
        "2026-05-17 09:30",
        '{"team": 7}',
        "clone of t0",
    ):
        assert part in text


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
    assert "no change" in texts[3]
    assert "(no title)" in texts[4]
    assert "Nothing on this page" in texts[5]
    assert "No observations" in texts[6]
    assert "observations 0, revision 3" in texts[7]


@seen
def test_a_bare_template_is_shown_and_said_to_be_empty(look: Look) -> None:
    text = look(state("- **Name**:\n", is_empty=True))
    assert "Working memory, empty" in text
    assert "- **Name**:" in text


# ---------------------------------------------------------------------- messages in words


@seen
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (HumanMessage("Hi", name="Caroline"), r"user Caroline\s*Hi"),
        (
            AIMessage("", tool_calls=[{"name": "book", "args": {"place": "Zürich"}, "id": "1"}]),
            r'calls book: {"place": "Zürich"}',
        ),
        (
            AIMessage(
                [{"type": "text", "text": "I look"}, {"type": "tool_use", "id": "1", "name": "book", "input": {}}],
                tool_calls=[{"name": "book", "args": {}, "id": "1"}],
            ),
            r"I look\s*\[calls book: {}\]",
        ),
        (ToolMessage("booked", name="book", tool_call_id="1"), r"tool book\s*booked"),
        (HumanMessage([{"type": "image_url", "image_url": {"url": "data:x"}}]), r"\[picture\]"),
        (HumanMessage([{"type": "image", "base64": "AAAA"}, "a dog"]), r"\[picture\]\s*a dog"),
        (HumanMessage([{"no": "type"}]), r"\[content\]"),
        (HumanMessage(""), r"\[nothing\]"),
    ],
)
def test_a_message_is_put_into_words(look: Look, message: BaseMessage, said: str) -> None:
    text = look(Page(items=[stored(message)], total=1))
    assert re.search(said, text)
    assert "AAAA" not in text
    assert "data:x" not in text


@seen
def test_long_messages_are_cut(look: Look) -> None:
    text = look(Page(items=[stored(HumanMessage("word " * 1000))], total=1))
    assert text.count("word") < 130
    assert re.search(r"word … \[4,4\d\d\s+more\]", text)


@pytest.mark.parametrize(
    ("text", "characters", "lines", "shown"),
    [
        ("short", 5, 1, "short"),
        ("three little words", 13, 1, "three little … [6 more]"),
        ("one verylongword", 12, 1, "one verylong … [4 more]"),
        ("one\ntwo\nthree", 99, 2, "one\ntwo … [6 more]"),
        ("", 1, 1, ""),
    ],
)
def test_a_cut_falls_between_words_and_says_what_is_missing(text: str, characters: int, lines: int, shown: str) -> None:
    assert cut(text, characters, lines) == shown


@seen
def test_long_diffs_are_cut(look: Look) -> None:
    text = look(state("\n".join(map(str, range(1000)))).diff(None))
    assert "added 1,000 lines" in text
    assert "… [801 more lines]" in text


# ---------------------------------------------------------------------- what it costs


def test_notebooks_need_no_rich() -> None:
    code = "import sys; from langchain_workingmem import RecallResult as R; R()._repr_html_(); sys.exit('rich' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
