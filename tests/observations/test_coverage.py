"""Which messages a model is shown, and which the log stands for: each exactly once, on every branch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, ObservationLog, ObservationOptions, OptionError
from tests.helpers.archives import unsealed
from tests.observations.observers import Echo

IDS: dict[str, Any] = {"thread_id": "t", "user_id": "u"}
Make = Callable[..., Memory]


def observing(make_memory: Make, scope: Any, **more: Any) -> Memory:
    options = {"model": Echo(), "message_tokens": 2, "keep_tokens": 1, "background": False, **more}
    return make_memory(observations=ObservationOptions(scope=scope, **options))


def talk(memory: Memory, turns: int, first: int = 0) -> None:
    for number in range(first, first + turns):
        said = [HumanMessage(f"question {number}", id=f"q{number}"), AIMessage(f"answer {number}", id=f"a{number}")]
        memory.save_turn(said, **IDS)


def shown(memory: Memory, messages: Any = "and now?", **more: Any) -> tuple[list[str], list[str]]:
    """Return the ids of the messages that are shown as they are, and of those that the log cites."""
    context = memory.context(messages, **IDS, **more)
    assert isinstance(context.observations, ObservationLog)
    cited = {id for one in context.observations for _, id in one.sources}
    return [str(one.id) for one in context.messages if str(one.id)[:1] in "qa" and len(str(one.id)) < 5], sorted(cited)


both_scopes = pytest.mark.parametrize("scope", ["thread", "user"])


@both_scopes
def test_observed_messages_leave_the_context_and_the_rest_stays(make_memory: Make, scope: Any) -> None:
    memory = observing(make_memory, scope)
    talk(memory, 4)
    memory.observations.observe("t")
    assert shown(memory) == (["q3", "a3"], ["a0", "a1", "a2", "q0", "q1", "q2"])


@both_scopes
def test_a_branch_takes_its_observations_away_and_brings_them_back(make_memory: Make, scope: Any) -> None:
    memory = observing(make_memory, scope)
    talk(memory, 4)
    memory.observations.observe("t")
    edited: list[BaseMessage] = [
        HumanMessage("question 0", id="q0"),
        AIMessage("answer 0", id="a0"),
        HumanMessage("other", id="q9"),
    ]
    assert shown(memory, edited) == (["q9"], ["a0", "q0"])  # in the turn that makes the branch
    memory.save_turn([*edited, AIMessage("another answer", id="a9")], **IDS)
    assert shown(memory) == (["q9", "a9"], ["a0", "q0"])
    assert [id for one in memory.observations.get(**IDS) for _, id in one.sources] == ["q0", "a0"]
    back = [
        HumanMessage(f"question {n}", id=f"q{n}") if k else AIMessage(f"answer {n}", id=f"a{n}")
        for n in range(4)
        for k in (1, 0)
    ]
    assert shown(memory, [*back, HumanMessage("next")])[1] == ["a0", "a1", "a2", "q0", "q1", "q2"]
    memory.save_turn([*back, HumanMessage("next", id="q10"), AIMessage("yes", id="a10")], **IDS)
    assert shown(memory) == (["q3", "a3", "q10", "a10"], ["a0", "a1", "a2", "q0", "q1", "q2"])


@both_scopes
def test_what_is_cited_with_a_message_of_another_branch_is_shown_until_it_is_observed_again(
    make_memory: Make, scope: Any
) -> None:
    options = ObservationOptions(
        model=Echo(together=10), scope=scope, message_tokens=2, keep_tokens=1, background=False
    )
    memory = make_memory(observations=options)
    talk(memory, 3)
    memory.observations.observe("t")
    assert shown(memory) == (["q2", "a2"], ["a0", "a1", "q0", "q1"])
    memory.history.truncate("t", after="q1")
    assert shown(memory) == (["q0", "a0", "q1"], [])
    talk(memory, 2, first=5)
    log = memory.observations.observe("t")
    assert len(log) == 1
    assert shown(memory)[1] == ["a0", "a5", "q0", "q1", "q5"]
    assert memory.observations.observe("t").usage == log.usage  # nothing is left to observe


@both_scopes
def test_a_deleted_message_takes_its_observation_along_and_shows_the_others_of_it(
    make_memory: Make, scope: Any
) -> None:
    options = ObservationOptions(
        model=Echo(together=10), scope=scope, message_tokens=2, keep_tokens=1, background=False
    )
    memory = make_memory(observations=options)
    talk(memory, 3)
    memory.observations.observe("t")
    assert memory.history.delete(["a0"], thread_id="t") == 1
    assert shown(memory) == (["q0", "q1", "a1", "q2", "a2"], [])


@both_scopes
@pytest.mark.parametrize("way", ["update", "append", "save_turn"])
def test_an_edited_message_takes_its_observation_along(make_memory: Make, scope: Any, way: str) -> None:
    memory = observing(make_memory, scope)
    talk(memory, 3)
    memory.observations.observe("t")
    edited = [AIMessage("a better answer", id="a0")]
    if way == "save_turn":
        memory.save_turn([HumanMessage("question 0", id="q0"), *edited], **IDS)
    else:
        getattr(memory.history, way)(edited, **IDS)
    assert shown(memory) == (["a0", "q2", "a2"], ["a1", "q0", "q1"])


@both_scopes
def test_a_log_that_is_cleared_shows_all_messages(make_memory: Make, scope: Any) -> None:
    memory = observing(make_memory, scope)
    talk(memory, 3)
    memory.observations.observe("t")
    whole = memory.observations.get(**IDS)
    cleared = memory.observations.clear(**IDS)
    assert not cleared
    assert cleared.pending_tokens > whole.pending_tokens
    assert shown(memory) == (["q0", "a0", "q1", "a1", "q2", "a2"], [])
    assert cleared.origin == "clear"


@both_scopes
def test_a_call_is_shown_again_with_its_results(make_memory: Make, scope: Any) -> None:
    memory = observing(make_memory, scope)
    calls = [{"name": "look", "args": {}, "id": f"c{n}"} for n in range(2)]
    traffic = [AIMessage("", tool_calls=calls, id="a0"), ToolMessage("x", tool_call_id="c0", id="a1")]
    turn = [
        HumanMessage("look", id="q0"),
        *traffic,
        ToolMessage("y", tool_call_id="c1", id="a2"),
        AIMessage("both", id="a3"),
    ]
    memory.save_turn(turn, **IDS)
    talk(memory, 1, first=5)
    memory.observations.observe("t")
    assert shown(memory) == (["q5", "a5"], ["a0", "a1", "a2", "a3", "q0"])
    memory.history.update([ToolMessage("z", tool_call_id="c1", id="a2")], **IDS)
    assert shown(memory) == (["a0", "a1", "a2", "q5", "a5"], ["a3", "q0"])


@both_scopes
def test_questions_of_the_present_turn_are_shown_as_they_are(make_memory: Make, scope: Any) -> None:
    memory = observing(make_memory, scope)
    talk(memory, 3)
    memory.observations.observe("t")
    memory.history.truncate("t", after="q1")  # a covered question without its answer
    assert shown(memory, [HumanMessage("question 1", id="q1"), HumanMessage("and now?", id="q9")]) == (
        ["q1", "q9"],
        ["a0", "q0"],
    )


@both_scopes
@pytest.mark.parametrize("background", [True, False])
def test_what_was_never_observed_is_pending(make_memory: Make, scope: Any, *, background: bool) -> None:
    memory = observing(make_memory, scope, background=background, message_tokens=10_000)
    talk(memory, 3)
    shown_first = memory.context("and now?", **IDS).observations
    assert shown_first is not None
    assert shown_first.pending_tokens > 0
    assert memory.observations.get(**IDS).pending_tokens == shown_first.pending_tokens


@both_scopes
def test_a_context_that_is_sent_again_leaves_nothing_behind(make_memory: Make, scope: Any) -> None:
    memory = observing(make_memory, scope)
    talk(memory, 4)
    memory.observations.observe("t")
    memory.history.update([HumanMessage("another question 1", id="q1")], **IDS)  # raw again, before covered messages
    context = memory.context([HumanMessage("and now?", id="q9")], **IDS)
    assert shown(memory) == (["q1", "q3", "a3"], ["a0", "a1", "a2", "q0", "q2"])
    memory.save_turn([*context.messages, AIMessage("now this", id="a9")], **IDS)
    assert memory.history.messages("t", superseded=True) == memory.history.messages("t")
    again = memory.context([*context.messages, AIMessage("now this", id="a9"), HumanMessage("well?", id="q10")], **IDS)
    assert [one.id for one in again.messages] == ["q1", "q3", "a3", "q9", "a9", "q10"]
    assert all("covered" not in key for one in memory.history.messages("t") for key in one.additional_kwargs)


@both_scopes
@pytest.mark.parametrize("how", ["imported", "cloned", "handed over", "stored without observations"])
def test_the_observer_counts_what_a_thread_held_before(make_memory: Make, scope: Any, how: str) -> None:
    memory = observing(make_memory, scope, background=True, message_tokens=60)
    thread, user, plain = "t", "u", make_memory()
    talk(plain, 30)
    if how == "imported":
        records = unsealed(plain.users.export("u"))
        plain.users.delete("u")
        memory.users.load(records)
    if how == "cloned":
        thread = memory.threads.clone("t").thread.id
    if how == "handed over":
        memory.threads.transfer("t", user_id="u", to="v")
        user = "v"
    ids = {"thread_id": thread, "user_id": user}
    memory.save_turn([HumanMessage("one more"), AIMessage("yes")], **ids)
    memory.settled()
    assert len(memory.context("and now?", thread_id=thread, user_id=user).messages) < 10
    assert memory.observations.get(**ids).pending_tokens < 60


def test_an_id_that_is_no_text_is_an_error_with_the_remedy(plain: Memory) -> None:
    ids: Any = ["1"]
    with pytest.raises(OptionError, match="type list"):
        plain.observations.delete(ids, thread_id="t")
