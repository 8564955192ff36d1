"""`forget_messages` deletes what search_memory has just shown, and the turn that asked for it; nothing else, and nothing comes back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import redis
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command
from pydantic import BaseModel

from langchain_workingmem import Memory, ObservationOptions, RecallOptions, TitleOptions, WorkingMemoryOptions
from langchain_workingmem._engine.effects import Plan
from langchain_workingmem.errors import OptionError, RedisConnectionError
from langchain_workingmem.history import delete_messages
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.canaries import keys_with
from tests.helpers.crashes import CrashError
from tests.helpers.embedded import wait_until
from tests.helpers.models import Bench, ModelDownError, Scripted, ask, calling, configured
from tests.helpers.observers import Echo
from tests.keeping.scripted import knows, put

pytestmark = pytest.mark.in_turn("face")

TOOLS = ["search_memory", "forget_messages"]
PIN, WANTED = "zq4711", "please forget that my pin is zq4711"
ANN, BOB = configured("t", "ann"), configured("b", "bob")
SEARCHING = calling(("search_memory", {"query": f"pin {PIN}"}), id="search")


def numbers_in(message: BaseMessage, words: str = PIN) -> list[int]:
    """Return the numbers of the messages of a search that hold these words."""
    found = re.findall(r'<message number="(\d+)"[^>]*>([^<]*)', str(message.text))
    return [int(number) for number, text in found if words in text]


def forgetting(id: str = "forget", words: str = PIN) -> Callable[[list[BaseMessage]], AIMessage]:
    """Answer with a call that forgets all that the last search has shown with these words."""
    return lambda seen: calling(("forget_messages", {"numbers": numbers_in(seen[-1], words)}), id=id)


DONE = f"I have forgotten your pin {PIN}."


class Person(BaseModel):
    pin: str | None = None


def memory_of(bench: Bench, **options: Any) -> Memory:
    return bench.memory(embeddings=bench.embeddings, recall=RecallOptions(top_k=4, message_range=1), **options)


def tell(memory: Memory, thread: str = "old", user: str = "ann") -> None:
    """Tell the PIN in a thread; the agent notes it with a tool, and answers twice."""
    asked = HumanMessage(f"my pin is {PIN}", id=f"{thread}-q")
    noted = calling(("note", {"text": PIN}), id=f"{thread}-c")
    result = ToolMessage(f"noted {PIN}", tool_call_id=f"{thread}-c-0", id=f"{thread}-r")
    memory.history.append([HumanMessage("hello", id=f"{thread}-h")], thread_id=thread, resource_id=user)
    for answer in (f"your pin is {PIN}, noted", "noted"):  # the first one is superseded
        turn = [asked, noted, result, AIMessage(answer, id=f"{thread}-{len(answer)}")]
        memory.save_turn(turn, thread_id=thread, resource_id=user)


def stored(memory: Memory, thread: str) -> list[str]:
    return [str(one.text) for one in memory.history.messages(thread, superseded=True)]


def agent_with(memory: Memory, model: Scripted, *others: Any, saver: Any = None) -> Any:
    return create_agent(model, middleware=[MemoryMiddleware(memory, tools=TOOLS), *others], checkpointer=saver)


@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_secret_and_the_request_are_gone(bench: Bench, raw: redis.Redis, prefix: str, *, checkpointed: bool) -> None:
    memory = memory_of(bench)
    tell(memory, "old")
    tell(memory, "bobs", "bob")
    model = Scripted.says("hi", SEARCHING, forgetting(), DONE, "fine")
    agent = agent_with(memory, model, saver=InMemorySaver() if checkpointed else None)
    bench.run(agent, ask("hello"), ANN)
    result = bench.run(agent, ask(WANTED), ANN)
    assert result["messages"][-1].text == DONE
    assert stored(memory, "old") == ["hello", "noted"]
    assert stored(memory, "t") == ["hello", "hi"]
    assert stored(memory, "bobs").count(f"my pin is {PIN}") == 1
    assert {key.split("{")[1].split("}")[0] for key in keys_with(raw, prefix, PIN)} == {"bobs"}
    told = model.seen[-1][-1]
    assert isinstance(told, ToolMessage)
    assert "1 message is deleted for good" in told.text
    assert ("checkpoints" in told.text) == checkpointed
    # the state does not bring it back, and shows it to no model
    if checkpointed:
        assert WANTED not in [one.text for one in bench.run(agent, ask("and now?"), ANN)["messages"]]
    else:
        bench.run(agent, {"messages": [*result["messages"], HumanMessage("and now?")]}, ANN)
    assert PIN not in str(model.seen[-1])
    assert stored(memory, "t") == ["hello", "hi", "and now?", "fine"]


def test_a_state_that_still_holds_it_brings_nothing_back(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    """Another thread of the same user has the messages in its checkpoints."""
    memory, saver = memory_of(bench), InMemorySaver()
    model = Scripted.says("hi", f"noted {PIN}", SEARCHING, forgetting(), DONE, "fine", "well")
    agent = agent_with(memory, model, saver=saver)
    old = configured("old", "ann")
    bench.run(agent, ask("hello"), old)
    bench.run(agent, ask(f"my pin is {PIN}"), old)
    bench.run(agent, ask(WANTED), ANN)
    assert stored(memory, "old") == ["hello", "hi"]
    for words in ("how are you?", "and today?"):
        bench.run(agent, ask(words), old)
        assert PIN not in str(model.seen[-1])
    assert stored(memory, "old") == ["hello", "hi", "how are you?", "fine", "and today?", "well"]
    assert keys_with(raw, prefix, PIN) == []


def test_numbers_that_were_not_shown_are_refused(bench: Bench) -> None:
    """Invented, of an earlier turn, of another run, or one that is not there beside one that is: nothing is deleted."""

    def one_more(seen: list[BaseMessage]) -> AIMessage:
        return calling(("forget_messages", {"numbers": [*numbers_in(seen[-1]), 77]}), id="mixed")

    memory, saver = memory_of(bench), InMemorySaver()
    tell(memory)
    none = calling(("forget_messages", {"numbers": []}), id="none")
    model = Scripted.says(SEARCHING, "found", calling(("forget_messages", {"numbers": [1, 2]}), id="late"), none, "no")
    agent = agent_with(memory, model, saver=saver)
    bench.run(agent, ask("what is my pin?"), ANN)
    found = numbers_in(model.seen[1][-1], "")
    assert {1, 2} <= {*found}
    before = stored(memory, "old")
    bench.run(agent, ask("forget it"), ANN)
    assert "search_memory has not shown 1, 2 since" in str(model.seen[3][-1].text)
    assert "Nothing was done" in str(model.seen[4][-1].text)
    other = agent_with(memory, Scripted.says(calling(("forget_messages", {"numbers": found}), id="other"), "no"))
    bench.run(other, ask("forget it"), configured("t2", "ann"))
    model.script += [calling(("search_memory", {"query": PIN}), id="again"), one_more, "no"]
    bench.run(agent, ask("forget it now"), ANN)
    assert "has not shown 77 since" in str(model.seen[-1][-1].text)
    assert stored(memory, "old") == before
    assert "forget it now" in stored(memory, "t")  # a turn that forgot nothing is kept


def test_searches_at_the_same_time_have_numbers_of_their_own(bench: Bench) -> None:
    memory = memory_of(bench)
    tell(memory, "old")
    memory.history.append([HumanMessage("the code is zq9", id="c")], thread_id="codes", resource_id="ann")
    both = calling(("search_memory", {"query": PIN}), ("search_memory", {"query": "code zq9"}), id="both")

    def second(seen: list[BaseMessage]) -> AIMessage:
        first, last = (numbers_in(one, "") for one in seen[-2:])
        assert not {*first} & {*last}
        return calling(("forget_messages", {"numbers": numbers_in(seen[-1], "zq9")}), id="forget")

    bench.run(agent_with(memory, Scripted.says(both, second, "done")), ask("forget the code"), ANN)
    assert stored(memory, "codes") == []
    assert f"my pin is {PIN}" in stored(memory, "old")


def test_a_person_decides(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    """Rejected: a usual turn. Edited: what the person chose. Approved in another process: all of it."""
    memory, saver = memory_of(bench), InMemorySaver()
    tell(memory, "old")
    memory.history.append([HumanMessage("the code is zq9", id="c")], thread_id="codes", resource_id="ann")
    person = HumanInTheLoopMiddleware({"forget_messages": True})
    searches = [calling(("search_memory", {"query": "pin code"}), id=f"search{at}") for at in range(3)]
    calls = [forgetting(f"forget{at}", "") for at in range(3)]
    model = Scripted.says(searches[0], calls[0], "as you like", searches[1], calls[1], "the code only", *searches[2:])
    agent = agent_with(memory, model, person, saver=saver)
    before = stored(memory, "old")

    def decide(agent: Any, **decision: Any) -> None:
        bench.run(agent, Command(resume={"decisions": [decision]}), ANN)

    assert "__interrupt__" in bench.run(agent, ask("forget my pin"), ANN)
    decide(agent, type="reject", message="No.")
    assert stored(memory, "old") == before
    assert stored(memory, "t")[-2:] == [
        "User rejected the tool call for `forget_messages` with reason: No.",
        "as you like",
    ]
    size = len(stored(memory, "t"))

    assert "__interrupt__" in bench.run(agent, ask("forget the code"), ANN)
    code = numbers_in(next(one for one in reversed(model.seen[-1]) if isinstance(one, ToolMessage)), "zq9")
    decide(agent, type="edit", edited_action={"name": "forget_messages", "args": {"numbers": code}})
    assert (stored(memory, "codes"), stored(memory, "old")) == ([], before)
    assert len(stored(memory, "t")) == size

    model.script += calls[2:]
    assert "__interrupt__" in bench.run(agent, ask(WANTED), ANN)
    assert WANTED in stored(memory, "t")  # it waits; so a run that is never resumed keeps all
    again = Scripted.says(DONE, "fine")
    resumed = agent_with(memory_of(bench), again, person, saver=saver)
    decide(resumed, type="approve")
    assert WANTED in str(again.seen[0])  # the model still knows what it was asked
    assert "deleted for good" in str(again.seen[0][-1].text)
    assert f"my pin is {PIN}" not in stored(memory, "old")
    assert WANTED not in stored(memory, "t")
    bench.run(resumed, ask("and now?"), ANN)
    assert PIN not in stored(memory, "t")[-2]
    assert "pin is" not in str(again.seen[1])


def test_a_graph_with_nodes(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    memory = memory_of(bench)
    tell(memory, "old")
    tools = memory.tools(include=TOOLS)
    model = Scripted.says(SEARCHING, forgetting(), DONE, "fine", "well")
    bound = model.bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("load", memory.load_node())
    graph.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_node("save", memory.save_node())
    graph.add_edge(START, "load")
    graph.add_edge("load", "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", "__end__": "save"})
    graph.add_edge("tools", "model")
    agent = graph.compile(InMemorySaver())
    assert bench.run(agent, ask(WANTED), ANN)["messages"][-1].text == DONE
    assert keys_with(raw, prefix, PIN) == []
    for words in ("and now?", "and then?"):
        bench.run(agent, ask(words), ANN)
        assert PIN not in str(model.seen[-1])
    assert stored(memory, "t") == ["and now?", "fine", "and then?", "well"]
    assert stored(memory, "old") == ["hello", "noted"]


def test_a_run_that_fails_after_it_leaves_nothing(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    memory, saver = memory_of(bench), InMemorySaver()
    tell(memory, "old")
    model = Scripted.says(SEARCHING, forgetting(), ModelDownError())
    agent = agent_with(memory, model, saver=saver)
    with pytest.raises(ModelDownError):
        bench.run(agent, ask(WANTED), ANN)
    assert keys_with(raw, prefix, PIN) == []
    # another process goes on, or the user asks something else
    last = Scripted.says(DONE, "fine")
    again = agent_with(memory_of(bench), last, saver=saver)
    bench.run(again, None, ANN)
    assert WANTED in str(last.seen[0])
    assert keys_with(raw, prefix, PIN) == []
    bench.run(again, ask("and now?"), ANN)
    assert PIN not in str(last.seen[1])
    assert stored(memory, "t") == ["and now?", "fine"]


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("resumes", [True, False])
def test_a_process_that_ends_in_the_tool(
    bench: Bench, raw: redis.Redis, prefix: str, monkeypatch: pytest.MonkeyPatch, *, steps: int, resumes: bool
) -> None:
    """After one step the messages are gone, after two the request; the result of the tool is in no checkpoint."""
    memory, saver = memory_of(bench), InMemorySaver()
    tell(memory, "old")
    left = [*range(steps)]

    def crashing(*args: Any, **more: Any) -> Plan[int]:
        count = yield from delete_messages(*args, **more)
        left.pop()
        if not left:
            raise CrashError
        return count

    with monkeypatch.context() as patched:
        patched.setattr("langchain_workingmem.faces.tools.forgetting.delete_messages", crashing)
        with pytest.raises(CrashError):
            bench.run(agent_with(memory, Scripted.says(SEARCHING, forgetting()), saver=saver), ask(WANTED), ANN)
    assert stored(memory, "old") == ["hello", "noted"]
    assert bool(keys_with(raw, prefix, PIN)) == (steps == 1)  # the request and its search, which a resumed run deletes
    model = Scripted.says(*([DONE, "fine"] if resumes else ["fine"]))
    again = agent_with(memory_of(bench), model, saver=saver)
    if resumes:
        bench.run(again, None, ANN)
        assert keys_with(raw, prefix, PIN) == []
    bench.run(again, ask("and now?"), ANN)
    if steps == 2 or resumes:
        assert PIN not in str(model.seen[-1])
        assert stored(memory, "t") == ["and now?", "fine"]
        assert keys_with(raw, prefix, PIN) == []


def test_values_lines_and_titles_go_along(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    keeper = knows({f"my pin is {PIN}": [put("/pin", PIN)]})
    memory = memory_of(
        bench,
        working_memory=WorkingMemoryOptions(schema=Person, keeper=keeper),
        observations=ObservationOptions(model=Echo(), message_tokens=1, keep_tokens=0),
        title=TitleOptions(model=Scripted.says(*[f"about {PIN}"] * 9)),
    )
    for thread in ("old", "bobs"):
        user = "ann" if thread == "old" else "bob"
        memory.save_turn(
            [HumanMessage(f"my pin is {PIN}", id="q"), AIMessage("noted", id="a")], thread_id=thread, resource_id=user
        )
        wait_until(lambda: [one.title for one in memory.threads.list(resource_id=user)] == [f"about {PIN}"])  # noqa: B023
        memory.working_memory.keep(thread, resource_id=user)
        memory.observations.observe(thread, resource_id=user)
    assert PIN in memory.working_memory.get(resource_id="ann").text
    assert len(keys_with(raw, prefix, PIN)) > 8
    model = Scripted.says(SEARCHING, forgetting(), DONE)
    bench.run(agent_with(memory, model), ask(WANTED), ANN)
    told = str(model.seen[-1][-1].text)
    assert "What working memory had from these messages is gone, too." in told
    assert {re.findall(r"\{(\w+)", key)[0] for key in keys_with(raw, prefix, PIN)} == {"bob", "bobs"}
    assert PIN in memory.working_memory.get(resource_id="bob").text


def test_two_memories_forget_the_turn(bench: Bench, raw: redis.Redis, prefix: str) -> None:
    memory, team = memory_of(bench), memory_of(bench, key_prefix=f"{prefix}:team")
    tell(memory, "old")
    model = Scripted.says(SEARCHING, forgetting(), DONE, "fine")
    others = [MemoryMiddleware(memory, tools=TOOLS), MemoryMiddleware(team, tools=[], name="team")]
    for middleware in (others, others[::-1]):
        agent = create_agent(model, middleware=middleware, checkpointer=InMemorySaver())
        bench.run(agent, ask(WANTED), ANN)
        assert keys_with(raw, prefix, PIN) == []
        assert stored(team, "t") == []
        tell(memory, "old2")
        model.script = [SEARCHING, forgetting(), DONE]


def test_memory_that_is_away_promises_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = memory_of(bench)
    tell(memory, "old")
    call: Any = {"type": "tool_call", "id": "f", "name": "forget_messages", "args": {"numbers": [1]}}

    def broken(*_: Any, **__: Any) -> Any:
        raise RedisConnectionError("gone")
        yield

    monkeypatch.setattr("langchain_workingmem.faces.tools.forgetting.delete_messages", broken)
    model = Scripted.says(SEARCHING, forgetting(), "later")
    bench.run(agent_with(memory, model), ask("forget my pin"), ANN)
    assert "not certain" in str(model.seen[-1][-1].text)
    assert "forget my pin" in stored(memory, "t")
    # outside of a graph no search was shown
    assert "has not shown 1" in memory.tools(include=TOOLS, resource_id="ann")[1].invoke(call).text


def test_who_offers_it(bench: Bench) -> None:
    memory = memory_of(bench)
    assert "forget_messages" not in [one.name for one in memory.tools()]
    with pytest.raises(OptionError, match="give the model both tools"):
        memory.tools(include=["forget_messages"])
    tell(memory, "old")
    search, _ = memory.tools(include=TOOLS, resource_id="ann")
    assert numbers_in(AIMessage(search.invoke({"query": "pin"})))
    (plain,) = memory.tools(include=["search_memory"], resource_id="ann")
    assert "number=" not in plain.invoke({"query": "pin"})
    model = Scripted.says("ok", "ok")
    read_only = MemoryMiddleware(memory, tools=TOOLS, read_only=True)
    bench.run(create_agent(model, middleware=[read_only]), ask("hi"), ANN)
    bench.run(agent_with(memory, model), ask("hi"), configured("t", "ann", memory={"read_only": True}))
    assert model.tools == [["search_memory"]] * 2
