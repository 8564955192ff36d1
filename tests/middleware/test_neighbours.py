"""`MemoryMiddleware` beside the middleware that people combine it with."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    dynamic_prompt,
    hook_config,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from langchain_workingmem import HistoryOptions, Memory, WorkingMemoryOptions
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.models import Bench, ModelDownError, Scripted, ask, breaks, calling, remembered, said, weather
from tests.middleware.samples import TURN, stored

pytestmark = pytest.mark.in_turn("face")


@pytest.fixture(params=["memory first", "memory last"])
def memory_first(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "memory first")


def beside(
    model: Scripted, memory: Memory, *others: AgentMiddleware[Any, Any], first: bool = True, **options: Any
) -> Any:
    """Make an agent with memory listed before or behind the other middleware."""
    middleware: list[AgentMiddleware[Any, Any]] = [MemoryMiddleware(memory), *others]
    return create_agent(
        model, [weather, breaks], middleware=middleware if first else [*middleware[1:], middleware[0]], **options
    )


def oslo(id: str = "a") -> AIMessage:
    return calling(("weather", {"city": "Oslo"}), id=id)


# ---------------------------------------------------------------------- a human in the loop

APPROVE: dict[str, Any] = {"type": "approve"}
REJECT: dict[str, Any] = {"type": "reject", "message": "never"}
EDIT: dict[str, Any] = {"type": "edit", "edited_action": {"name": "weather", "args": {"city": "Rome"}}}


def asking() -> HumanInTheLoopMiddleware:
    return HumanInTheLoopMiddleware({"weather": True})


@pytest.mark.parametrize(
    ("decision", "outcome"), [(APPROVE, "sunny in Oslo"), (EDIT, "sunny in Rome"), (REJECT, "never")]
)
def test_a_turn_with_an_interrupt_is_stored_as_it_ends(
    bench: Bench, decision: dict[str, Any], outcome: str, memory_first: bool
) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo(), "done", "bye")
    agent = beside(model, memory, asking(), first=memory_first, checkpointer=InMemorySaver())
    assert "__interrupt__" in bench.run(agent, ask("weather?"))
    result = bench.run(agent, Command(resume={"decisions": [decision]}))
    assert outcome in result["messages"][2].text
    assert model.seen[1] == result["messages"][:3]
    assert memory.history.messages("t") == result["messages"]
    bench.run(agent, ask("thanks"))
    assert said(model.seen[2]) == [*said(result["messages"]), "human: thanks"]
    assert stored(memory) == [*said(result["messages"]), "human: thanks", "ai: bye"]


def test_a_resume_in_a_new_process_knows_memory_again(bench: Bench) -> None:
    saver = InMemorySaver()
    first = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    first.history.append([HumanMessage("one", id="1"), AIMessage("two", id="2")], **TURN)
    first.working_memory.update("Ann has a dog", **TURN)
    bench.run(beside(Scripted.says(oslo()), first, asking(), checkpointer=saver), ask("weather?"))
    second = bench.memory(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says("done")
    bench.run(beside(model, second, asking(), checkpointer=saver), Command(resume={"decisions": [APPROVE]}))
    turn = ["human: weather?", "ai: weather#a-0", "tool: sunny in Oslo"]
    assert "Ann has a dog" in remembered(model.seen[0])
    assert said(model.seen[0]) == ["human: one", "ai: two", *turn]
    assert stored(second) == ["human: one", "ai: two", *turn, "ai: done"]


def test_an_interrupt_that_nobody_answers_loses_no_word_of_the_user(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo(), "fine")
    agent = beside(model, memory, asking(), first=memory_first, checkpointer=InMemorySaver())
    bench.run(agent, ask("weather?"))
    bench.run(agent, ask("never mind"))
    assert said(model.seen[1]) == ["human: weather?", "human: never mind"]
    assert [line for line in stored(memory) if not line.startswith("ai: weather")] == [
        "human: weather?",
        "human: never mind",
        "ai: fine",
    ]


# ---------------------------------------------------------------------- retries and fallbacks


def retrying(**options: Any) -> ModelRetryMiddleware:
    return ModelRetryMiddleware(max_retries=2, initial_delay=0, backoff_factor=0, jitter=False, **options)


def test_each_try_is_sent_the_same_and_stored_once(bench: Bench, memory_first: bool) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    memory.setup()
    bench.embeddings.calls.clear()
    model = Scripted.says(ModelDownError("1"), ModelDownError("2"), "yes")
    bench.run(beside(model, memory, retrying(), first=memory_first), ask("pears", "q"))
    assert [said(messages) for messages in model.seen] == [["human: pears"]] * 3
    assert model.seen == [memory.context([HumanMessage("pears", id="q")], **TURN).messages] * 3
    assert stored(memory) == ["human: pears", "ai: yes"]
    assert sum("pears" in call for call in bench.embeddings.calls) == 2  # as a query and as a document


def test_when_all_tries_fail_the_error_is_raised_and_the_user_heard(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    model = Scripted.says(*[ModelDownError("down")] * 3)
    with pytest.raises(ModelDownError):
        bench.run(beside(model, memory, retrying(on_failure="error"), first=memory_first), ask("one"))
    assert stored(memory) == ["human: one"]


def test_a_fallback_is_sent_the_same_and_stored_once(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    memory.history.append([HumanMessage("one", id="1"), AIMessage("two", id="2")], **TURN)
    model, other = Scripted.says(ModelDownError("down")), Scripted.says("four")
    bench.run(beside(model, memory, ModelFallbackMiddleware(other), first=memory_first), ask("three"))
    assert said(model.seen[0]) == ["human: one", "ai: two", "human: three"]
    assert other.seen == model.seen
    assert stored(memory) == ["human: one", "ai: two", "human: three", "ai: four"]


def test_a_tool_that_is_tried_again_has_one_result(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    tries = ToolRetryMiddleware(max_retries=1, initial_delay=0, backoff_factor=0, jitter=False)
    model = Scripted.says(calling(("breaks", {"text": "x"}), id="a"), "sorry")
    result = bench.run(beside(model, memory, tries, first=memory_first), ask("go"))
    assert memory.history.messages("t") == result["messages"]
    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "ai"]


# ---------------------------------------------------------------------- summaries


def summing(*summaries: str, trigger: int, keep: int) -> SummarizationMiddleware:
    return SummarizationMiddleware(Scripted.says(*summaries), trigger=("messages", trigger), keep=("messages", keep))


def is_summary(line: str) -> bool:
    return "SUMMARY" in line


def remembered_anywhere(messages: list[BaseMessage]) -> str:
    first = messages[0]
    return str(first.text) if isinstance(first, SystemMessage) else remembered(messages)


@pytest.mark.parametrize("options", [HistoryOptions(), HistoryOptions(last_messages=None)], ids=["ten", "all"])
def test_a_summary_at_the_start_of_a_turn(bench: Bench, memory_first: bool, options: HistoryOptions) -> None:
    memory = bench.memory(history=options)
    model = Scripted.says("2", "4", "6", "8")
    agent = beside(
        model, memory, summing("SUMMARY", trigger=5, keep=1), first=memory_first, checkpointer=InMemorySaver()
    )
    for text in ("1", "3", "5", "7"):
        bench.run(agent, ask(text))
    third, fourth = (said(messages) for messages in model.seen[2:])
    assert is_summary(third[0])
    assert third[1:] == ["human: 5"]
    assert is_summary(fourth[0])
    assert fourth[1:] == ["human: 5", "ai: 6", "human: 7"]
    assert stored(memory) == [f"{'human' if at % 2 else 'ai'}: {at}" for at in range(1, 9)]


STEPS = ["human: go", "ai: weather#c1-0", "tool: sunny in Oslo", "ai: weather#c2-0", "tool: sunny in Oslo", "ai: done"]


@pytest.mark.parametrize("saver", [True, False], ids=["checkpointer", "no checkpointer"])
def test_a_summary_in_mid_turn_stores_the_conversation(bench: Bench, memory_first: bool, saver: bool) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo("c1"), oslo("c2"), "done", "bye")
    checkpointer = InMemorySaver() if saver else None
    summary = summing("SUMMARY", "SUMMARY", trigger=4, keep=2)
    agent = beside(model, memory, summary, first=memory_first, checkpointer=checkpointer)
    bench.run(agent, ask("go"))
    assert is_summary(said(model.seen[2])[0])
    assert said(model.seen[2])[1:] == STEPS[3:5]
    assert stored(memory) == STEPS


def test_a_summary_in_mid_turn_asks_recall_no_second_time(bench: Bench, memory_first: bool) -> None:
    memory = bench.recalling()
    memory.history.append([HumanMessage("walk to the cat", id="x")], thread_id="pets", user_id="ann")
    bench.embeddings.calls.clear()
    model = Scripted.says(oslo("c1"), oslo("c2"), oslo("c3"), "done")
    summary = summing("SUMMARY", "SUMMARY", trigger=4, keep=2)
    bench.run(beside(model, memory, summary, first=memory_first), ask("walk"))
    assert is_summary(said(model.seen[3])[1])
    assert "SUMMARY" not in str(bench.embeddings.calls)
    recalled = remembered(model.seen[0])
    assert "walk to the cat" in recalled
    # the summary has taken the question away: memory then stands behind the prompt
    assert [remembered_anywhere(messages) for messages in model.seen] == [recalled] * 4


def test_history_that_no_summary_covers_stays_in_sight(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    memory.history.append([HumanMessage("my name is Ann", id="1"), AIMessage("hello", id="2")], **TURN)
    model = Scripted.says(oslo("c1"), oslo("c2"), oslo("c3"), "done")
    summary = summing("SUMMARY", "SUMMARY", trigger=4, keep=2)
    bench.run(beside(model, memory, summary, first=memory_first), ask("go"))
    assert is_summary(said(model.seen[3])[2])
    for messages in model.seen:
        assert said(messages)[:2] == ["human: my name is Ann", "ai: hello"]


# ---------------------------------------------------------------------- redaction


MAIL = "ann@example.org"


def everything(raw: redis.Redis, prefix: str) -> str:
    """Read whatever is stored under a prefix, in whatever form."""
    found = []
    for key in raw.scan_iter(f"{prefix}*"):
        kind = raw.type(key)
        found.append(key)
        if kind == b"hash":
            found += [part for pair in raw.hgetall(key).items() for part in pair]
        elif kind == b"string":
            found.append(raw.get(key))
        elif kind == b"list":
            found += raw.lrange(key, 0, -1)
        elif kind == b"zset":
            found += raw.zrange(key, 0, -1)
        elif kind == b"set":
            found += raw.smembers(key)
        elif kind == b"stream":
            found.append(repr(raw.xrange(key)).encode())
        else:
            found.append(raw.dump(key))
    return b"\n".join(found).decode(errors="replace")


@tool
def directory(name: str) -> str:
    """Look up an address."""
    return f"{name}: {MAIL}"


def test_only_redacted_text_is_stored(bench: Bench, raw: redis.Redis) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    model = Scripted.says(calling(("directory", {"name": "Ann"}), id="a"), f"it is {MAIL}")
    guard = PIIMiddleware("email", apply_to_input=True, apply_to_output=True, apply_to_tool_results=True)
    both: list[AgentMiddleware[Any, Any]] = [MemoryMiddleware(memory), guard]
    agent = create_agent(model, [directory], middleware=both)
    result = bench.run(agent, ask(f"is it {MAIL}?"))
    assert memory.history.messages("t") == result["messages"]
    assert stored(memory)[0] == "human: is it [REDACTED_EMAIL]?"
    found = everything(raw, bench.prefix)
    assert "REDACTED_EMAIL" in found
    assert MAIL not in found


def test_only_redacted_text_is_stored_when_the_model_fails(bench: Bench, raw: redis.Redis) -> None:
    memory = bench.recalling()
    agent = beside(Scripted.says(ModelDownError("down")), memory, PIIMiddleware("email"))
    with pytest.raises(ModelDownError):
        bench.run(agent, ask(f"is it {MAIL}?"))
    assert stored(memory) == ["human: is it [REDACTED_EMAIL]?"]
    assert MAIL not in everything(raw, bench.prefix)


class _RedactsAtTheEnd(AgentMiddleware):
    """Redacts when memory has had its last hook."""

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return PIIMiddleware("email", apply_to_input=True).before_model(state, runtime)


def test_what_is_redacted_at_the_end_is_no_edit_in_another_process(bench: Bench, raw: redis.Redis) -> None:
    saver, memories = InMemorySaver(), [bench.memory() for _ in range(2)]
    script = Scripted.says("a0", "a1", "a2")
    for turn, question in enumerate([f"is it {MAIL}?", "q1", "q2"]):
        agent = beside(script, memories[turn % 2], _RedactsAtTheEnd(), first=False, checkpointer=saver)
        bench.run(agent, ask(question))
    thread = memories[0].history.messages("t", superseded=True)
    assert [one.text for one in thread] == ["is it [REDACTED_EMAIL]?", "a0", "q1", "a1", "q2", "a2"]
    assert MAIL not in everything(raw, bench.prefix)


# ---------------------------------------------------------------------- another prompt


def test_middleware_that_replaces_the_prompt_cannot_take_memory_away(bench: Bench, memory_first: bool) -> None:
    memory = bench.recalling(working_memory=WorkingMemoryOptions(template=""))
    memory.history.append([HumanMessage("my cat is named Molly", id="x")], thread_id="pets", user_id="ann")

    @dynamic_prompt
    def prompt(_: Any) -> str:
        return "You are terse."

    model = Scripted.says("Molly")
    bench.run(beside(model, memory, prompt, first=memory_first), ask("how is my cat named"))
    assert said(model.seen[0]) == ["system: You are terse.", "human: how is my cat named"]
    assert "Molly" in remembered(model.seen[0])
    assert "<working_memory>" in remembered(model.seen[0])


# ---------------------------------------------------------------------- limits and early ends


def test_a_limit_of_tool_calls_that_ends_the_turn(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo("c1"), oslo("c2"), "bye")
    limit = ToolCallLimitMiddleware(run_limit=1, exit_behavior="end")
    agent = beside(model, memory, limit, first=memory_first, checkpointer=InMemorySaver())
    result = bench.run(agent, ask("go"))
    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert memory.history.messages("t") == result["messages"]
    bench.run(agent, ask("thanks"))
    assert said(model.seen[2]) == [*said(result["messages"]), "human: thanks"]


def test_a_limit_of_tool_calls_that_lets_the_model_go_on(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    model = Scripted.says(oslo("c1"), oslo("c2"), "done")
    result = bench.run(beside(model, memory, ToolCallLimitMiddleware(run_limit=1), first=memory_first), ask("go"))
    assert memory.history.messages("t") == result["messages"]
    assert model.seen[2] == result["messages"][:-1]


def test_a_limit_of_model_calls_that_ends_the_turn(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    limit = ModelCallLimitMiddleware(run_limit=1)
    result = bench.run(beside(Scripted.says(oslo()), memory, limit, first=memory_first), ask("go"))
    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "ai"]
    assert memory.history.messages("t") == result["messages"]


class Gate(AgentMiddleware[Any, Any]):
    """Answers by itself."""

    @hook_config(can_jump_to=["end"])
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("we are closed", id="gate")], "jump_to": "end"}


def test_a_turn_that_ends_before_the_model_is_stored(bench: Bench, memory_first: bool) -> None:
    memory, model = bench.memory(), Scripted.says()
    bench.run(beside(model, memory, Gate(), first=memory_first), ask("go"))
    assert model.seen == []
    assert stored(memory) == ["human: go", "ai: we are closed"]


def test_context_editing_changes_what_is_sent_and_not_what_is_stored(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    edits = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=1, keep=0, placeholder="cleared")])
    model = Scripted.says(oslo(), "sunny")
    bench.run(beside(model, memory, edits, first=memory_first), ask("go"))
    assert said(model.seen[1]) == ["human: go", "ai: weather#a-0", "tool: cleared"]
    assert stored(memory) == ["human: go", "ai: weather#a-0", "tool: sunny in Oslo", "ai: sunny"]


def test_to_do_lists_are_stored_as_the_tool_calls_they_are(bench: Bench, memory_first: bool) -> None:
    memory = bench.memory()
    todo = calling(("write_todos", {"todos": [{"content": "look", "status": "pending"}]}), id="a")
    result = bench.run(beside(Scripted.says(todo, "done"), memory, TodoListMiddleware(), first=memory_first), ask("go"))
    assert result["todos"] == [{"content": "look", "status": "pending"}]
    assert memory.history.messages("t") == result["messages"]
