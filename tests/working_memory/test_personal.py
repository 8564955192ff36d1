"""A template and instructions of each user's own, made by a function of the ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from langchain_workingmem import (
    Ids,
    Memory,
    OptionError,
    WorkingMemoryState,
    WorkingMemoryValidationError,
)
from tests.helpers.trips import Trips
from tests.helpers.types import Make
from tests.working_memory.samples import with_memory


class Asked:
    """Makes a template of the ids, and remembers by whom it was asked for."""

    def __init__(self) -> None:
        self.ids: list[Ids] = []

    def __call__(self, ids: Ids) -> str:
        self.ids.append(ids)
        return f"# {ids.user_id}\n- **Name**:\n- **Of {ids.user_id}**:\n"


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture(params=["user", "thread"])
def scope(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def personal(make_memory: Make, asked: Asked, scope: str) -> Memory:
    return with_memory(
        make_memory,
        template=asked,
        instructions=lambda ids: f"Be careful with {ids.user_id} in {ids.thread_id}.",
        scope=scope,
        tools=("update", "get", "clear"),
    )


ANN: dict[str, Any] = {"thread_id": "t", "user_id": "ann"}
TEMPLATE = "# ann\n- **Name**:\n- **Of ann**:\n"


def test_each_user_is_shown_a_template_of_their_own(personal: Memory) -> None:
    for user in ("ann", "bob"):
        block = str(personal.context("hi", thread_id=f"t{user}", user_id=user).messages[-1].text)
        assert f"<template>\n# {user}\n" in block
        assert f"Be careful with {user} in t{user}." in block
    state = personal.working_memory.get(**ANN)
    assert (state.template, state.is_empty) == (TEMPLATE, True)


def test_the_guards_know_the_users_template(personal: Memory) -> None:
    assert personal.working_memory.update(TEMPLATE, **ANN).revision == 0
    personal.working_memory.update(TEMPLATE.replace("Name**:", "Name**: Ann"), **ANN)
    with pytest.raises(WorkingMemoryValidationError, match="bare template"):
        personal.working_memory.update(TEMPLATE, **ANN)
    assert personal.working_memory.update(TEMPLATE, mode="replace", **ANN).is_empty
    assert not personal.working_memory.update("# bob\n- **Of bob**:", **ANN).is_empty


def test_the_tools_know_the_users_template(personal: Memory) -> None:
    update, get, clear = personal.tools(**ANN)
    update.invoke({"edits": [{"find": "- **Of ann**:", "replace": "- **Of ann**: tea"}]})
    assert personal.working_memory.get(**ANN).text == TEMPLATE.replace("Of ann**:", "Of ann**: tea")
    assert "bare template" in update.invoke({"memory": TEMPLATE})
    assert "tea" in get.invoke({})
    assert clear.invoke({}) == "Working memory is empty now."
    assert get.invoke({}) == "Working memory is empty."
    assert "ann" not in update.description


def test_a_thread_alone_means_its_owner(personal: Memory, asked: Asked, trips: Trips) -> None:
    personal.threads.create(thread_id="t", user_id="ann", working_memory="# ann\n- **Name**: Ann")
    calls: list[Callable[[], WorkingMemoryState]] = [
        lambda: personal.working_memory.get(thread_id="t"),
        lambda: personal.working_memory.update("# ann\n- **Name**: Anna", thread_id="t"),
        lambda: personal.working_memory.clear(thread_id="t"),
        lambda: personal.working_memory.revert(1, thread_id="t"),
    ]
    for call in calls:
        asked.ids.clear()
        assert call().template == TEMPLATE
        assert asked.ids == [Ids("t", "ann")]
    assert trips.of(lambda: personal.working_memory.get(thread_id="t")) == 2
    assert trips.of(lambda: personal.working_memory.get(**ANN)) == 1


@pytest.mark.parametrize("option", ["template", "instructions"])
@pytest.mark.parametrize("value", [None, 5, b"# A"])
def test_a_function_that_makes_no_text_is_refused(make_memory: Make, option: str, value: Any) -> None:
    memory = with_memory(make_memory, **{option: lambda _: value})
    for call in (
        lambda: memory.working_memory.get(**ANN),
        lambda: memory.working_memory.update("# A", **ANN),
        lambda: memory.context("hi", **ANN),
    ):
        with pytest.raises(OptionError, match=f"{option} returned a value of type {type(value).__name__}"):
            call()
