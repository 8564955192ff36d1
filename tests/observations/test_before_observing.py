"""The user's hook in front of the models that memory calls: what it hides is never sent, and never asked for again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Ids, Memory, ObservationOptions, OptionError, TitleOptions
from langchain_workingmem.options import Scope
from tests.helpers.models import Scripted
from tests.helpers.observers import Echo, elements
from tests.helpers.types import Make

pytestmark = [pytest.mark.both_faces, pytest.mark.programs]

IDS: Any = {"thread_id": "t", "resource_id": "u"}
SECRET = "4111"
Hooked = Callable[..., Memory]


class Reading(Echo):
    """Notes what it is given."""

    seen: Any = None

    def _generate(self, messages: list[BaseMessage], *arguments: Any, **more: Any) -> Any:
        self.seen = [*(self.seen or []), [text for _, _, text in elements(messages)]]
        return super()._generate(messages, *arguments, **more)


def hide(messages: list[BaseMessage], _: Ids) -> list[BaseMessage]:
    """Change the copies in place: what is stored stays."""
    for one in messages:
        one.content = str(one.content).replace(SECRET, "[card]")
    return messages


def without_tools(messages: list[BaseMessage], _: Ids) -> list[BaseMessage]:
    return [one for one in reversed(messages) if one.type != "tool"]


async def hide_later(messages: list[BaseMessage], ids: Ids) -> list[BaseMessage]:
    await asyncio.sleep(0)
    return hide(messages, ids)


@pytest.fixture
def hooked(make_memory: Make) -> Hooked:
    """Make a memory with a hook, and a thread that waits for the observer."""

    def made(hook: Any, scope: Scope = "thread", model: Any = None) -> Memory:
        options = ObservationOptions(
            model=model or Reading(),
            scope=scope,
            message_tokens=50,
            keep_tokens=0,
            background=False,
            before_observing=hook,
        )
        memory = make_memory(observations=options)
        said = [
            HumanMessage(f"my card is {SECRET}", id="1"),
            AIMessage("", tool_calls=[{"name": "pay", "args": {}, "id": "c"}], id="2"),
            ToolMessage(f"paid by {SECRET}", tool_call_id="c", id="3"),
            AIMessage("done", id="4"),
        ]
        memory.history.append([*said, HumanMessage("thanks", id="5"), AIMessage("bye", id="6")], **IDS)
        return memory

    return made


def model_of(memory: Memory) -> Any:
    return memory._core.state.observations.model  # type: ignore[union-attr]


@pytest.mark.parametrize("hook", [hide, hide_later])
@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_what_a_hook_redacts_is_not_sent_and_counts_as_observed(hooked: Hooked, hook: Any, scope: Scope) -> None:
    memory = hooked(hook, scope)
    log = memory.observations.observe("t")
    assert "my card is [card]" in log.observations[0].text
    assert SECRET not in str(model_of(memory).seen)
    assert {id for one in log for _, id in one.sources} >= {"1", "3"}
    assert SECRET in memory.history.messages("t")[0].text
    assert memory.observations.observe("t").usage.calls == 1


def test_what_a_hook_drops_is_not_sent_and_never_asked_for_again(hooked: Hooked) -> None:
    memory = hooked(without_tools)
    log = memory.observations.observe("t")
    (texts,) = model_of(memory).seen
    assert texts[0] == f"my card is {SECRET}"
    assert "paid by" not in str(texts)
    assert {id for one in log for _, id in one.sources} == {"1", "2", "4"}
    assert log.covered_until == {"t": 3}
    assert memory.observations.observe("t").usage.calls == 1


def test_a_hook_that_drops_all_costs_no_call(hooked: Hooked) -> None:
    memory = hooked(lambda messages, _: messages[:0])
    log = memory.observations.observe("t")
    assert (len(log), log.usage.calls, log.covered_until) == (0, 0, {"t": 3})
    context = memory.context([HumanMessage("and now?")], **IDS)
    assert [message.text for message in context.messages] == ["thanks", "bye", "and now?"]


def test_a_hook_knows_whose_messages_it_gets(hooked: Hooked) -> None:
    given: list[Ids] = []

    def note(messages: list[BaseMessage], ids: Ids) -> list[BaseMessage]:
        given.append(ids)
        return messages

    hooked(note).observations.observe("t")
    assert given == [Ids("t", "u")]


def _fails(*_: Any) -> Any:
    raise ValueError(SECRET)


BAD: dict[str, tuple[Any, str]] = {
    "an error": (_fails, "ValueError"),
    "nothing": (lambda *_: None, "NoneType"),
    "texts": (lambda *_: ["hello"], "a str among the messages"),
    "a new message": (lambda given, _: [*given, HumanMessage("more", id="x")], "whose id"),
    "another id": (lambda given, _: [one.model_copy(update={"id": "x"}) for one in given], "whose id"),
    "another type": (lambda given, _: [AIMessage("hm", id=one.id) for one in given], "whose id"),
    "twice": (lambda given, _: [*given, *given], "twice"),
    "StopIteration": (lambda *_: next(iter(())), "RuntimeError"),
}


@pytest.mark.parametrize("kind", [*BAD])
def test_after_a_failure_of_the_hook_nothing_is_sent_and_all_is_raw(
    hooked: Hooked, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    hook, seen = BAD[kind]
    memory = hooked(hook)
    with caplog.at_level(logging.WARNING, "langchain_workingmem"):
        log = memory.observations.observe("t")
    assert model_of(memory).calls == 0
    assert (len(log), log.usage.calls, log.usage.failures) == (0, 0, 1)
    assert seen in str(log.usage.last_error)
    assert "before_observing" in caplog.text
    assert SECRET not in caplog.text + str(log.usage.last_error)
    assert len(memory.context([HumanMessage("and now?")], **IDS).messages) == 7


def test_a_hook_that_takes_too_long_is_a_failure(make_memory: Make, hooked: Hooked) -> None:
    async def slow(*_: Any) -> None:
        await asyncio.sleep(60)

    memory = hooked(slow)
    object.__setattr__(memory._core.state.observations, "timeout", _Brief())
    assert "no answer within" in str(memory.observations.observe("t").usage.last_error)


class _Brief:
    def total_seconds(self) -> float:
        return 0.05


@pytest.mark.parametrize(("hook", "title"), [(hide, "my card is [card]"), (_fails, None), (lambda *_: [], None)])
def test_the_model_of_titles_reads_what_the_hook_leaves(make_memory: Make, hook: Any, title: str | None) -> None:
    model = Scripted.says("A title", "A title")
    options = ObservationOptions(model=Echo(), before_observing=hook, background=False)
    memory = make_memory(observations=options, title=TitleOptions(model=model))
    memory.save_turn([HumanMessage(f"my card is {SECRET}", id="1"), AIMessage("hi", id="2")], **IDS)
    memory.settled()
    assert [str(call[1].text) for call in model.seen] == ([title] if title else [])
    thread = memory.threads.get("t")
    assert thread is not None
    assert (thread.title == "A title") is bool(title)


def test_a_hook_is_a_function() -> None:
    with pytest.raises(OptionError, match="before_observing"):
        ObservationOptions(model=Echo(), before_observing="hide")  # type: ignore[arg-type]
