"""What turns cost: bars and amounts."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, OptionError
from langchain_workingmem.studio import prices_of
from langchain_workingmem.studio.costs import plots
from langchain_workingmem.studio.costs.plots import HEIGHT, by_turn, plot, shares
from tests.helpers.types import Make
from tests.studio.conftest import Open

TRIP = {"user": "maya", "thread": "trip"}
PRICES = prices_of(["big=2.50/10/0.25", "a=b=1/2"])


def answer(text: str, read: int, written: int, cached: int = 0) -> AIMessage:
    usage: Any = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return AIMessage(text, usage_metadata={**usage, "input_token_details": {"cache_read": cached}})


@pytest.fixture
def spent(make_memory: Make) -> Memory:
    """Two turns: one with a call of a tool, whose answers say what they took, and one that says nothing."""
    memory = make_memory()
    call = answer("", 1_000_000, 100, 400_000).model_copy(
        update={"tool_calls": [{"name": "look", "args": {}, "id": "c"}]}
    )
    turn = [HumanMessage("a" * 40), call, ToolMessage("b" * 80, tool_call_id="c"), answer("c" * 20, 200, 300)]
    memory.save_turn(turn, thread_id="trip", resource_id="maya")
    memory.save_turn([HumanMessage("d" * 8), AIMessage("e" * 4)], thread_id="trip", resource_id="maya")
    return memory


def test_prices_are_read_as_the_command_line_has_them() -> None:
    assert [(one.name, one.input, one.output, one.cached) for one in PRICES] == [
        ("big", 2.5, 10, 0.25),
        ("a=b", 1, 2, 1),  # without a price of its own, what is cached costs as much
    ]
    assert PRICES[0].of(1_000_000, 1_000_000, 400_000) == pytest.approx(0.6 * 2.5 + 0.4 * 0.25 + 10)


@pytest.mark.parametrize(
    "wrong", ["", "big", "big=", "big=1", "=1/2", "big=1/x", "big=-1/2", "big=nan/1", "big=1/2/3/4"]
)
def test_a_wrong_price_is_refused_with_the_form(wrong: str) -> None:
    with pytest.raises(OptionError, match="NAME=INPUT/OUTPUT"):
        prices_of([wrong])


def test_a_context_has_a_bar_of_its_parts_that_add_up(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived, prices=PRICES).page("/context", **TRIP, q="Is the hut booked?")
    context = lived.context("Is the hut booked?", thread_id="trip", resource_id="maya")
    assert f"<bdi>{context.usage.total:,}</bdi>" in page
    bars = re.findall(r'class="c-(\w+)" x="([\d.]+)" width="([\d.]+)" height="5"', page)
    assert {part for part, *_ in bars} == {"history", "recall", "working_memory", "question"}
    assert sum(float(width) for *_, width in bars) == pytest.approx(100, abs=0.01)
    assert "<bdi>big</bdi></b>:" in page
    assert "same beginning from the cache" in page
    assert "--price" in open_studio(lived).text("/context", **TRIP, q="x")


def test_a_thread_is_counted_turn_by_turn(spent: Memory, open_studio: Open) -> None:
    rows = spent.history.page("trip").items
    first, second = by_turn(rows)
    assert (first.label, first.asked, first.calls, first.input, first.cached, first.output) == (
        *("#0", 10, 2, 1_000_200),
        *(400_000, 400),
    )
    assert (second.label, second.asked, second.answered, second.calls) == ("#4", 2, 1, 0)
    page = open_studio(spent, prices=PRICES).page("/cost", **TRIP)
    assert "1,000,200" in page
    assert f"<td>{0.6002 * 2.5 + 0.4 * 0.25 + 0.004:.2f}</td>" in page
    assert len(re.findall(r'<tr><th scope="row">', page)) == 2
    assert 'href="/thread?user=maya&amp;thread=trip&amp;at=4#m-4"' in page


def test_a_long_thread_comes_in_pages(spent: Memory, open_studio: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "READ", 2)
    visitor = open_studio(spent)
    page = visitor.page("/cost", **TRIP)
    assert "#4" in page
    older = re.search(r'href="(/cost\?[^"]+)" rel="next"', page)
    assert older
    assert "#2" in visitor.client.get(older[1].replace("&amp;", "&")).text


def test_a_user_is_counted_day_by_day_with_the_work_in_the_background(spent: Memory, open_studio: Open) -> None:
    visitor = open_studio(spent, prices=PRICES)
    page = visitor.page("/cost", user="maya")
    assert re.search(r'<tr><th scope="row">\d{4}-\d\d-\d\d</th><td>12</td>', page)
    for name in ("titles", "observer", "keeper"):
        assert f'<th scope="row">{name}</th><td>0</td>' in page
    assert "No message is here in the last 7 days" in visitor.page("/cost", user="nobody")


def test_of_too_many_messages_of_a_user_the_newest_are_counted(
    spent: Memory, open_studio: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = open_studio(spent)
    monkeypatch.setattr(plots, "READ", 2)
    for number in range(3):
        said = [HumanMessage("f" * 400), AIMessage("g" * 800)] if number == 2 else [HumanMessage("old")]
        spent.save_turn(said, thread_id=f"other-{number}", resource_id="maya")
    page = visitor.page("/cost", user="maya")
    assert "have 10 messages. This page counts the newest 2, from " in page
    assert re.search(r'<tr><th scope="row">\d{4}-\d\d-\d\d</th><td>100</td><td>200</td>', page)


def test_answers_that_report_nothing_have_no_second_plot(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived).page("/cost", **TRIP)
    assert "No stored answer reports" in page
    assert page.count('class="plot"') == 1


def test_bars_stand_on_the_ground_and_fill_the_picture() -> None:
    drawn = plot([{"question": 1, "history": 3}, {"question": 2, "history": 0}, {}])
    assert drawn.top == 4
    assert [(bar.part, bar.height) for bar in drawn.bars] == [("question", 10), ("history", 30), ("question", 20)]
    assert [bar.y for bar in drawn.bars] == [HEIGHT - 10, 0, HEIGHT - 20]
    assert (plot([]).bars, plot([{"question": 0}]).bars) == ([], [])
    assert [(bar.x, bar.width) for bar in shares({"a": 1, "b": 0, "c": 3})] == [(0, 25), (25, 75)]
    assert shares({"a": 0}) == []
