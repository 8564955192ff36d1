"""Clients that send the whole conversation, of which retention has deleted a part: nothing comes back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, OptionError, RecallOptions
from tests.applications.test_backfill import stored
from tests.helpers.models import Bench


def memory_of(bench: Bench) -> Memory:
    return bench.memory(embeddings=bench.embeddings, recall=RecallOptions(top_k=4, message_range=1))


class Window:
    """A chat that keeps its conversation, and sends all of it each time."""

    def __init__(self, bench: Bench, *, has_ids: bool) -> None:
        self.memory = memory_of(bench)
        self.has_ids = has_ids
        self.lines: list[str] = []

    def messages(self) -> list[BaseMessage]:
        kinds = (HumanMessage, AIMessage)
        return [kinds[at % 2](text, id=str(at) if self.has_ids else None) for at, text in enumerate(self.lines)]

    def say(self, text: str, answer: str) -> None:
        self.lines.append(text)
        self.memory.context(self.messages(), thread_id="t", user_id="maya")
        self.lines.append(answer)
        self.memory.save_turn(self.messages(), thread_id="t", user_id="maya")


@pytest.mark.parametrize("until", ["its second message", "now"])
def test_a_client_that_sends_what_retention_has_deleted_goes_on(bench: Bench, until: str) -> None:
    window = Window(bench, has_ids=True)
    for text in ("ants?", "bees?", "cats?"):
        window.say(text, f"yes, {text}")
    rows = window.memory.history.page("t").items
    window.memory.history.delete(thread_id="t", until=datetime.now(UTC) if until == "now" else rows[1].stored_at)
    left = stored(window.memory, "t")
    assert len(left) == (0 if until == "now" else 4)
    for text in ("dogs?", "elks?"):
        window.say(text, f"no {text}")
    assert stored(window.memory, "t") == [*left, "human: dogs?", "ai: no dogs?", "human: elks?", "ai: no elks?"]


def test_a_list_without_ids_that_begins_before_its_thread_is_refused(bench: Bench) -> None:
    window = Window(bench, has_ids=False)
    for text in ("ants?", "bees?"):
        window.say(text, f"yes, {text}")
    rows = window.memory.history.page("t").items
    window.memory.history.delete(thread_id="t", until=rows[1].stored_at)
    with pytest.raises(OptionError, match="older than thread 't'"):
        window.say("cats?", "no")
    window.lines = window.lines[2:5]  # as the remedy says
    window.lines.append("no")
    window.memory.save_turn(window.messages(), thread_id="t", user_id="maya")
    assert stored(window.memory, "t") == ["human: bees?", "ai: yes, bees?", "human: cats?", "ai: no"]
