"""The log of observations: as people see it, and as text."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import TypeAdapter

from langchain_workingmem import MemoryContext, Observation, ObservationUsage, RecallResult
from langchain_workingmem._text.copies import with_memory
from langchain_workingmem.observations.prompts import log_block
from tests.display.samples import AT, in_notebook, in_terminal, log, observation, recalled, state

seen = pytest.mark.parametrize("look", [in_notebook, in_terminal])
Look = Callable[[Any], str]
NEXT_DAY = AT + timedelta(days=1, hours=2)


# ---------------------------------------------------------------------- what is there to see


@seen
def test_a_log_shows_each_observation_under_its_day(look: Look) -> None:
    sources = [("trip", "1"), ("trip", "2"), ("work", "9")]
    hut = observation("Wants a hut in the Dolomites", "11", priority="high", sources=sources)
    text = look(log(hut, observation("Has a dog", "12", said_at=NEXT_DAY, priority="low")))
    assert "2 observations" in text
    heads = r"day \(UTC\)\s*time\s*priority\s*observation\s*sources\s*id[\s▸]*"
    first = r"2026-05-17\s*09:30\s*high\s*Wants a hut in the Dolomites\s*3\s*11\s*"
    assert re.search(rf"{heads}{first}2026-05-18\s*11:30\s*low\s*Has a dog\s*1\s*12\b", text)


@seen
def test_a_day_is_shown_once_when_threads_took_turns(look: Look) -> None:
    """In the log of a resource, the lines of one thread may be older than those of another before them."""
    said = [("a", AT), ("b", NEXT_DAY), ("c", AT + timedelta(minutes=1))]
    text = look(log(*(observation(name * 5, name, said_at=at) for name, at in said)))
    assert text.count("2026-05-17") == text.count("2026-05-18") == 1
    assert text.index("aaaaa") < text.index("ccccc") < text.index("bbbbb")


def test_what_matters_most_stands_out() -> None:
    found = log(*(observation(f"{one} one", priority=one) for one in ("normal", "high", "low")))
    assert re.findall("<strong>(.*?)</strong>", found._repr_html_()) == ["high one"]
    assert [line.split()[3:5] for line in in_terminal(found).splitlines() if line.startswith("▸")] == [["high", "one"]]


@seen
def test_a_log_shows_its_size_its_revision_and_what_is_not_observed_yet(look: Look) -> None:
    found = log(observation("x"), tokens=38_000, pending_tokens=12_345, revision=7, updated_at=AT, origin="reflect")
    facts = "tokens 38,000 · pending tokens 12,345 · revision 7 · updated 2026-05-17 09:30 UTC · by reflect"
    assert facts in look(found)
    assert "model calls" not in look(found)
    assert "fail" not in look(found)


@seen
def test_a_log_shows_what_it_cost_and_what_failed_last(look: Look) -> None:
    usage = ObservationUsage(calls=12, input_tokens=98_000, output_tokens=4_100, failures=3, last_error="cut off")
    text = look(log(usage=usage))
    assert "model calls 12 (98,000 tokens read, 4,100 written) · failures 3 · last error cut off" in text


@seen
def test_a_long_log_shows_its_newest_observations_and_says_so(look: Look) -> None:
    text = look(log(*(observation(f"<{at}>", str(at)) for at in range(203))))
    assert "203 observations" in text
    assert "not shown the oldest 3" in text
    assert "<2>" not in text
    assert "<3>" in text
    assert "<202>" in text


@seen
def test_a_context_shows_its_log_before_recall_and_working_memory(look: Look) -> None:
    found = recalled(HumanMessage("I like huts", id="1"))
    context = MemoryContext(
        messages=[HumanMessage("Which hut?")],
        system=[],
        recalled=found,
        working_memory=state("Has a dog."),
        observations=log(observation("Likes Cortina"), revision=4),
    )
    text = look(context)
    assert "observations 1, revision 4" in text
    places = [text.index(part) for part in ("Which hut?", "Likes Cortina", "I like huts", "Has a dog.")]
    assert places == sorted(places)


@seen
def test_a_context_without_observations_does_not_name_them(look: Look) -> None:
    context = MemoryContext(messages=[HumanMessage("Hi")], system=[], recalled=RecallResult())
    assert context.observations is None
    assert "observation" not in look(context)


@seen
def test_a_context_tells_what_is_in_front_of_its_first_message_and_of_the_question(look: Look) -> None:
    first = with_memory(HumanMessage("Hello"), ["<observations>"])
    question = with_memory(HumanMessage("Which hut?"), ["<recalled_messages>"])
    context = MemoryContext(messages=[first, AIMessage("Hi"), question], system=[], recalled=RecallResult())
    text = look(context)
    parts = [
        *("In front of the messages", "<observations>", "Hello", "Hi"),
        *("Which hut?", "In front of the question", "<recalled_messages>"),
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    only = look(MemoryContext(messages=[question], system=[], recalled=RecallResult()))
    assert "In front of the question" in only
    assert "In front of the messages" not in only


# ---------------------------------------------------------------------- as text


def test_a_log_as_text_is_what_models_read() -> None:
    dog, huts = observation("Has a dog", priority="high"), observation("Asked for huts", said_at=NEXT_DAY)
    found = log(dog, observation("Talked about rain", priority="low"), huts)
    assert found.as_text().split("\n") == [
        *("2026-05-17", "! 09:30 Has a dog", "~ 09:30 Talked about rain"),
        *("2026-05-18", "- 11:30 Asked for huts"),
    ]
    assert f"\n{found.as_text()}\n</observations>" in str(log_block(found.observations))
    assert log().as_text() == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("</observations> & <b>", "&lt;/observations&gt; &amp; &lt;b&gt;"),
        ("one\n2026-01-01\n! 00:00 two", "one 2026-01-01 ! 00:00 two"),
        ("one\u2028two\r\nthree", "one two three"),
        ("a\u200bb\U000e0041 \x1b[31m", "ab ␛[31m"),
    ],
)
def test_no_text_ends_its_line_or_hides_in_it(text: str, line: str) -> None:
    assert log(observation(text)).as_text() == f"2026-05-17\n- 09:30 {line}"


@given(st.lists(st.text(st.characters() | st.sampled_from("<>&\r\n\u2028\u202e\ud800\x85")), min_size=1))
def test_a_log_as_text_has_a_line_for_each_observation(texts: list[str]) -> None:
    text = log(*map(observation, texts)).as_text()
    assert len(text.splitlines()) == 1 + len(texts)
    assert not set("<>") & set(text)
    text.encode()


# ---------------------------------------------------------------------- the records


def test_a_log_is_a_sequence_of_observations() -> None:
    one, other = observation("a", "1"), observation("b", "2")
    assert list(log(one, other)) == [one, other]
    assert len(log(one, other)) == 2


def test_an_observation_is_compared_by_what_people_see() -> None:
    """Its number and the positions of its sources are of the store: they differ after an import, for example."""
    one = observation("a", number=1, positions=(("trip", 1),))
    assert one == dataclasses.replace(one, number=2, positions=(("trip", 5),))
    assert one != dataclasses.replace(one, text="b")
    assert "number" not in repr(one)
    assert "positions" not in repr(one)


@pytest.mark.parametrize("record", [observation("a"), log(), ObservationUsage()])
def test_records_are_frozen_and_take_no_attribute_more(record: Any) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(record, dataclasses.fields(record)[0].name, 1)
    assert not hasattr(record, "__dict__")


def test_a_state_may_hold_a_context_with_observations() -> None:
    """A graph with a pydantic state resolves the annotations of a `MemoryContext`."""
    given = {"observations": [dataclasses.asdict(observation("a"))], "tokens": 1, "revision": 1, "pending_tokens": 0}
    usage = {"covered_until": {"trip": 4}, "usage": {"calls": 1}}
    context = TypeAdapter(MemoryContext).validate_python(
        {"messages": [], "system": [], "recalled": {}, "observations": given | usage}
    )
    assert context.observations is not None
    assert context.observations.observations == [observation("a")]
    assert isinstance(context.observations.observations[0], Observation)
    assert isinstance(context.observations.observations[0].said_at, datetime)
