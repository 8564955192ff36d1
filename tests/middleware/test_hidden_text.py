"""What a model is shown by memory hides nothing; what is stored, and the messages of the history, stay as they were."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import HumanMessage

from langchain_workingmem import WorkingMemoryOptions
from tests.helpers.types import Invoke, Make

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
TEXT = "my pass\u200bword\U000e0041 is \x1b[1mfish\u202e"


def test_what_memory_shows_hides_nothing_and_what_was_said_stays(make_memory: Make, invoke: Invoke) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions(template="", tools=("get",)))
    memory.history.append([HumanMessage(TEXT, id="1")], **IDS)
    memory.working_memory.update(TEXT, **IDS)
    (tool,) = memory.tools(**IDS)
    assert invoke(tool, {}) == "my password is ␛[1mfish"
    assert memory.context("and?", **IDS).messages[0].content == memory.working_memory.get(**IDS).text == TEXT
