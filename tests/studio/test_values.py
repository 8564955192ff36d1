"""The values of working memory in the studio: when each held, by which messages, and the way back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.studio.stored import timeline
from tests.helpers.types import Make
from tests.keeping.shown_samples import ANN, day, keep, options, say
from tests.studio.conftest import EVIL, Open

WHERE: Any = {"user": "ann"}


@pytest.fixture
def kept(make_memory: Make) -> Callable[..., Memory]:
    """Ann has moved, and has no allergy after all."""

    def make(**given: Any) -> Memory:
        memory = make_memory(working_memory=options(**given))
        say(memory, (1, "I live in Bern, and nuts are a danger"), (2, f"{EVIL} moved to Lisbon"))
        keep(memory, "/city", "Bern", 1)
        keep(memory, "/allergies/nuts", "nuts", 1)
        keep(memory, "/city", "Lisbon", 2)
        keep(memory, "/allergies/nuts", None, 2)
        return memory

    return make


def values(page: str) -> list[str]:
    """Return the text of each value of a page, without markup."""
    items = re.findall(r'<li id="v-\d+".*?</li>', page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", one).split()) for one in items]


def test_each_value_has_its_time_and_what_held_before(kept: Any, open_studio: Open) -> None:
    page = open_studio(kept()).page("/working-memory", **WHERE)
    city, nuts = values(page)
    assert city.startswith("/city Lisbon since 2026-03-02 12:00 · keeper · message")
    assert "before: 1 Bern 2026-03-01 12:00 to 2026-03-02 12:00 · keeper · message" in city
    assert nuts.startswith("/allergies/nuts nothing since 2026-03-02 12:00")
    assert page.count("<rect") == 3
    assert "Bring back" not in page


def test_a_link_leads_to_each_message(kept: Any, open_studio: Open) -> None:
    visitor = open_studio(kept())
    page = visitor.page("/working-memory", **WHERE)
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/thread\?[^"]*message=[^"]*)"', page)]
    assert len(links) == 4
    answer = visitor.client.get(links[0], follow_redirects=False)
    assert (answer.status_code, answer.headers["location"].rpartition("#")[2]) == (303, "m-2")
    there = visitor.client.get(links[1]).text
    assert 'class="user target"' in there
    assert "I live in Bern" in there
    assert visitor.client.get(links[0].replace("message=m2", "message=gone")).status_code == 404


def test_a_link_leads_to_a_message_on_another_branch_too(kept: Any, open_studio: Open) -> None:
    memory = kept()
    memory.history.truncate("t", after="m1", resource_id="ann")
    answer = open_studio(memory).client.get("/thread?user=ann&thread=t&message=m2", follow_redirects=False)
    assert answer.headers["location"].endswith("#m-2-old")


def test_what_was_said_is_shown_with_a_value(kept: Any, open_studio: Open) -> None:
    page = open_studio(kept()).page("/working-memory", **WHERE, value="/city")
    shown = page.partition('<div class="sources">')[2].partition("</div>")[0]
    assert shown.index("I live in Bern") < shown.index("moved to Lisbon")
    assert "<script>" not in page
    assert "\x1b" not in page
    assert open_studio(kept()).get("/working-memory", **WHERE, value="/town").status_code == 404


def test_one_value_is_undone(kept: Any, open_studio: Open) -> None:
    memory = kept()
    visitor = open_studio(memory, write=True, is_program=True)
    assert "Bring back what held before" in visitor.page("/working-memory", **WHERE)
    assert visitor.send("/working-memory", {"action": "undo"}, **WHERE, value="/city").status_code == 200
    state = memory.working_memory.get(**ANN)
    assert (state.value.city, state.history("/city")[0].origin) == ("Bern", "person")
    shown = (
        visitor.page("/working-memory", **WHERE, value="/city")
        .partition('<div class="sources">')[2]
        .partition("</div>")[0]
    )
    assert shown.count("I live in Bern") == 1  # behind the value that holds, and behind the one of before


def test_a_studio_that_does_not_know_the_schema_writes_what_the_program_would(
    kept: Any, make_memory: Make, open_studio: Open
) -> None:
    memory = kept()
    keep(memory, "/pets/Rex/age", 4, 1)
    before = memory.working_memory.get(**ANN)
    visitor = open_studio(make_memory(working_memory=WorkingMemoryOptions(template="")), write=True)
    assert any(one.startswith("/city Lisbon") for one in values(visitor.page("/working-memory", **WHERE)))
    assert visitor.send("/working-memory", {"action": "undo"}, **WHERE, value="/city").status_code == 200
    text = before.text.replace("Lisbon", "Faro")
    edit = {"action": "edit", "text": text, "revision": str(before.revision + 1)}
    assert visitor.send("/working-memory", edit, **WHERE).status_code == 200
    after = memory.working_memory.get(**ANN)
    assert (after.text, after.sources("/pets/Rex/age")) == (text, before.sources("/pets/Rex/age"))
    gone = visitor.send("/working-memory", {"action": "undo"}, **WHERE, value="/town")
    assert gone.status_code == 404


def test_without_a_keeper_the_page_has_no_values(lived: Memory, open_studio: Open) -> None:
    page = open_studio(lived, write=True).page("/working-memory", user="maya")
    assert "<h2>Values</h2>" not in page
    answer = open_studio(lived, write=True).send("/working-memory", {"action": "undo"}, user="maya", value="/city")
    assert answer.status_code == 404


def test_bars_lie_within_the_time_of_all_values(kept: Any) -> None:
    state = kept().working_memory.get(**ANN)
    assert state.timeline is not None
    city, nuts = timeline(state.timeline, day(4))
    assert [[round(part, 1) for part in bar] for bar in city.bars] == [[28.6, 71.4], [0.0, 28.6]]
    assert [[round(part, 1) for part in bar] for bar in nuts.bars] == [[0.0, 28.6]]
    assert timeline({}, day(1)) == []
