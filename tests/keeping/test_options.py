"""The options of a keeper."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from langchain_workingmem import Memory, OptionError, WorkingMemoryOptions
from tests.helpers.models import Scripted
from tests.helpers.types import Make


def test_nobody_keeps_working_memory_beside_the_agent_by_default() -> None:
    options = WorkingMemoryOptions()
    assert (options.keeper, options.keep_after, options.background) == (None, 0, True)
    assert (options.trust, options.show_since, options.tools) == (("human", "tool"), False, ("update",))


def test_with_a_keeper_the_agent_has_the_tools_that_are_passed() -> None:
    assert WorkingMemoryOptions(keeper="openai:x").tools == ()
    assert replace(WorkingMemoryOptions(), keeper="openai:x").tools == ()
    assert WorkingMemoryOptions(keeper="openai:x", tools=("update",)).tools == ("update",)


def test_trust_takes_the_names_of_roles() -> None:
    assert WorkingMemoryOptions(trust=["user", "assistant"]).trust == ("human", "ai")


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"keeper": 5}, "keeper"),
        ({"keeper": "openai:x", "read_only": True}, "read_only"),
        ({"keep_after": -1}, "keep_after"),
        ({"background": 1}, "background"),
        ({"background": False}, "without a keeper"),
        ({"keep_after": 5}, "without a keeper"),
        ({"show_since": "yes"}, "show_since"),
        ({"trust": ()}, "trust"),
        ({"trust": ("robot",)}, "trust"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], seen: str) -> None:
    with pytest.raises(OptionError, match=seen):
        WorkingMemoryOptions(**options)


def test_a_model_is_found_by_its_name_when_the_memory_is_made(make_memory: Make) -> None:
    with pytest.raises(OptionError, match="nobody:nothing"):
        make_memory(working_memory=WorkingMemoryOptions(keeper="nobody:nothing"))
    model = Scripted.says("[]")
    memory: Memory = make_memory(working_memory=WorkingMemoryOptions(keeper=model))
    assert memory._core.state.remembering.keeper is model
