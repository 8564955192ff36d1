"""Whatever a client does with its conversation: the model is shown exactly the branch that the client is on.

After each step the branch must have been sent, in order, each message once, and the thread must hold it.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from langchain_workingmem import HistoryOptions, Memory
from langchain_workingmem._text.messages import words_digest
from langchain_workingmem._text.sending import without_block
from langchain_workingmem.middleware import MemoryMiddleware
from tests.helpers.conversations import accept, ai, result
from tests.helpers.examples import examples
from tests.helpers.models import Bench, Scripted, calling, configured, weather

pytestmark = pytest.mark.in_turn("face")

WHOLE = HistoryOptions(last_messages=None)


def spoken(messages: list[BaseMessage]) -> list[str]:
    """Write what was said, without the text of memory, blanks at both ends ignored."""
    return [str(without_block(message).text).strip() for message in messages if words_digest(message)]


def as_messages(texts: list[str], ids: dict[str, str] | None = None) -> list[BaseMessage]:
    kinds = {"q": HumanMessage, "a": AIMessage}
    return [kinds[text[0]](text, id=(ids or {}).get(text)) for text in texts]


class Numbers:
    """Gives each thing that is said words of its own, and knows in which order they were said."""

    def __init__(self) -> None:
        self.last = 0
        self.places: dict[str, int] = {}
        self.notes: list[str] = []  # of another program, which no branch leaves behind

    def next(self, kind: str) -> str:
        self.last += 1
        text = f"{kind}{self.last}"
        self.places[text] = self.last
        if kind == "a-note":
            self.notes.append(text)
        return text

    def shown(self, branch: list[str]) -> list[str]:
        """Put notes among what is said before the question, which is the last of the branch."""
        before = [note for note in self.notes if self.places[branch[0]] < self.places[note] < self.places[branch[-1]]]
        return self.stored(branch, before)  # what a model is sent begins with the user

    def stored(self, branch: list[str], notes: list[str] | None = None) -> list[str]:
        return sorted([*branch, *(self.notes if notes is None else notes)], key=self.places.__getitem__)


steps_of_clients = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "regenerate", "edit", "back", "note"]),
        st.sampled_from(["whole", "tail", "question"]),  # what the client sends
        st.sampled_from(["no ids", "no ids", "ids"]),
        st.integers(0, 2),  # tools that the answer needs
        st.integers(0, 10),  # which message or branch
        st.booleans(),  # blanks around the words
    ),
    min_size=2,
    max_size=9,
)


class Client:
    """A chat window: it has a branch, and remembers the ones that it has left."""

    def __init__(self) -> None:
        self.numbers = Numbers()
        self.branch: list[str] = []
        self.left: list[list[str]] = []
        self.ids: dict[str, str] = {}

    def ask(self, action: str, which: int, *, keeps_id: bool = False) -> bool:
        """Change the branch such that it ends with a question; tell whether anything but the question was changed."""
        questions = [at for at, text in enumerate(self.branch) if text[0] == "q"]
        if action == "regenerate" and questions:
            self.left.append(self.branch)
            at = questions[which % len(questions)]
            if at == 0:
                return self.ask("say", which)  # a list of one message is a new question
            self.branch = self.branch[: at + 1]
            return True
        if action == "edit" and len(questions) > 1:
            self.left.append(self.branch)
            at, new = questions[1 + which % (len(questions) - 1)], self.numbers.next("q")
            if keeps_id:
                self.ids[new] = self.ids[self.branch[at]]
            self.branch = [*self.branch[:at], new]
            return True
        if action == "back" and (others := [one for one in self.left if len(one) > 1 and one[:1] == self.branch[:1]]):
            chosen = others[which % len(others)]
            self.left.append(self.branch)
            self.branch = [*chosen, *([] if chosen[-1][0] == "q" else [self.numbers.next("q")])]
            return True
        self.branch = [*self.branch, self.numbers.next("q")]
        return False

    def sends(self, form: str, *, changed: bool) -> list[str]:
        """Return what of the branch is sent; a change shows only where enough of the branch is sent."""
        if changed or form == "whole":
            return self.branch
        return self.branch[-1:] if form == "question" else self.branch[-3:]

    def expected(self) -> list[str]:
        return self.numbers.shown(self.branch)


def check_thread(memory: Memory, thread: str, client: Client) -> None:
    current = memory.history.messages(thread)
    assert spoken(current) == client.numbers.stored(client.branch)
    everything = spoken(memory.history.messages(thread, superseded=True))
    assert len(everything) == len(set(everything)), "something is stored twice"
    assert set(client.numbers.places) == set(everything), "something is lost"
    results = [one.tool_call_id for one in current if isinstance(one, ToolMessage)]
    calls = [call["id"] for one in current if isinstance(one, AIMessage) for call in one.tool_calls]
    assert results == calls  # of a current answer, both or none
    assert getattr(memory.threads.get(thread), "message_count", 0) == len(current)


@given(steps_of_clients)
@examples(25, server=True, derandomize=True)
def test_an_agent_is_shown_the_branch_of_its_client(bench: Bench, steps: list[Any]) -> None:
    memory = bench.memory(history=WHOLE)
    config = configured(f"t{uuid4()}", "ann")
    thread = config["configurable"]["thread_id"]
    model = Scripted.says()
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory)])
    client = Client()
    for number, (action, form, ids, tools, which, blanks) in enumerate(steps):
        if action == "note":
            if client.branch:
                memory.history.append([AIMessage(client.numbers.next("a-note"))], thread_id=thread, user_id="ann")
            continue
        changed = client.ask(action, which, keeps_id=ids == "ids")
        texts = client.sends(form, changed=changed)
        sent = as_messages(texts, client.ids if ids == "ids" else None)
        if blanks:
            sent = [m.model_copy(update={"content": f" {m.content}\n"}) for m in sent]
        answer = client.numbers.next("a")
        calls = [calling(("weather", {"city": "x"}), id=f"c{number}-{at}") for at in range(tools)]
        model.script = [*calls, AIMessage(answer)]
        model.seen.clear()
        note(f"{action} {form} {ids}: sends {texts}, expects {client.expected()}")
        result = bench.run(agent, {"messages": sent}, config)["messages"]
        for seen in model.seen:
            accept(seen)
            assert spoken(seen) == client.expected()
        client.branch = [*client.branch, answer]
        client.ids |= {str(m.text).strip(): m.id for m in result if words_digest(m)}
        check_thread(memory, thread, client)


@given(steps_of_clients)
@examples(200, server=True, derandomize=True)
def test_a_context_is_the_branch_of_its_client(bench: Bench, steps: list[Any]) -> None:
    memory = bench.memory(history=WHOLE)
    thread = f"t{uuid4()}"
    ids: Any = {"thread_id": thread, "user_id": "ann"}
    client = Client()
    for number, (action, form, with_ids, tools, which, uses_tool) in enumerate(steps):
        if action == "note":
            if client.branch:
                memory.history.append([AIMessage(client.numbers.next("a-note"))], **ids)
            continue
        changed = client.ask(action, which, keeps_id=with_ids == "ids")
        texts = client.sends(form, changed=changed)
        sent = as_messages(texts, client.ids if with_ids == "ids" else None)
        note(f"{action} {form} {with_ids}: sends {texts}, expects {client.expected()}")
        if bench.face == "sync":
            context = memory.context(sent, **ids)
        else:
            context = bench.runner.run(memory.acontext(sent, **ids))
        accept(context.messages)
        assert spoken(context.messages) == client.expected()
        answer = client.numbers.next("a")
        # what is saved: the turn with the client's objects, with new ones, or all of the list
        names = client.ids if action == "edit" and with_ids == "ids" else None
        turns = {0: [sent[-1]], 1: as_messages(texts[-1:], names), 2: as_messages(texts, names)}
        traffic = [ai("", f"c{number}", id=f"t{number}"), result(f"c{number}", f"r{number}")]
        saved = [*turns[tools], *(traffic if uses_tool else ()), AIMessage(answer)]
        stored = memory.save_turn(saved, **ids)
        client.branch = [*client.branch, answer]
        client.ids |= {str(m.text).strip(): m.id for m in stored if m.id}
        check_thread(memory, thread, client)
        memory.save_turn([one.model_copy() for one in stored], **ids)  # once more, as after a lost reply
        check_thread(memory, thread, client)


steps_of_states = st.lists(
    st.tuples(
        st.sampled_from(
            ["say", "say", "say", "regenerate", "edit", "edit in place", "go back", "remove", "trim", "resend", "note"]
        ),
        st.integers(0, 2),
        st.integers(0, 20),
    ),
    min_size=2,
    max_size=9,
)


@given(steps_of_states)
@examples(25, server=True, derandomize=True)
def test_an_agent_is_shown_its_state(bench: Bench, steps: list[Any]) -> None:
    memory = bench.memory(history=WHOLE)
    config = configured(f"t{uuid4()}", "ann")
    thread = config["configurable"]["thread_id"]
    model = Scripted.says()
    agent = create_agent(model, [weather], middleware=[MemoryMiddleware(memory)], checkpointer=InMemorySaver())
    numbers = Numbers()
    tips: list[Any] = []  # configs of the ends of turns
    trimmed: set[str] = set()
    current = config

    def state(at: Any) -> list[Any]:
        return list(agent.get_state(at).values.get("messages", ()))

    for number, (action, tools, which) in enumerate(steps):
        before = state(current)
        questions = [message for message in before if message.type == "human"]
        given: Any = {"messages": [HumanMessage(numbers.next("q"))]}
        at = current
        if action == "note":
            if before:
                memory.history.append([AIMessage(numbers.next("a-note"))], thread_id=thread, user_id="ann")
            continue
        if action == "regenerate" and questions:
            # remove what follows the last question, and run again from there
            asked = before.index(questions[-1])
            gone = [RemoveMessage(id=str(m.id)) for m in before[asked + 1 :]]
            at = agent.update_state(current, {"messages": gone}, as_node="__start__")
            given = None
        elif action == "edit" and len(questions) > 1:
            asked = before.index(questions[-1])
            at = agent.update_state(current, {"messages": [RemoveMessage(id=str(m.id)) for m in before[asked:]]})
        elif action == "edit in place" and questions:
            stored_ids = {m.id for m in memory.history.messages(thread)}
            originals = [one for one in questions if one.id in stored_ids]  # not those that were sent again
            if not originals:
                continue
            chosen = before.index(originals[which % len(originals)])
            gone = [RemoveMessage(id=str(m.id)) for m in before[chosen + 1 :]]
            new = HumanMessage(numbers.next("q"), id=before[chosen].id)  # it ends the state: a branch begins
            at = agent.update_state(current, {"messages": [*gone, new]}, as_node="__start__")
            given = None
        elif action == "go back" and tips:
            at = tips[which % len(tips)]
        elif action == "remove" and len(before) > 3:
            texts = spoken(before)
            middle = [
                m for m in before[1:-1] if words_digest(m) and texts.count(str(m.text)) == 1
            ]  # not one that was sent again
            if middle:
                one = middle[which % len(middle)]
                at = agent.update_state(current, {"messages": [RemoveMessage(id=str(one.id))]})
        elif action == "trim" and len(questions) > 2:
            keep = before[before.index(questions[-2]) :]
            trimmed |= set(spoken(before[: before.index(questions[-2])])) - set(spoken(keep))
            gone_all = RemoveMessage(id=REMOVE_ALL_MESSAGES)
            at = agent.update_state(current, {"messages": [gone_all, *keep]})
        elif action == "resend" and before:
            copies = [m.model_copy(update={"id": None}) for m in before if words_digest(m)]
            # all of it, sent once more, then the question
            copies = list({str(m.text): m for m in copies}.values())
            given = {"messages": [*copies, *given["messages"]]}
        there = spoken(state(at))
        trimmed -= set(there)
        expected = list(dict.fromkeys([*there, *(spoken(given["messages"]) if given else [])]))
        answer = numbers.next("a")
        calls = [calling(("weather", {"city": "x"}), id=f"c{number}-{at_}") for at_ in range(tools)]
        model.script = [*calls, AIMessage(answer)]
        model.seen.clear()
        note(f"{action}: expects {numbers.shown(expected)}")
        run_config: RunnableConfig = {"configurable": {**config["configurable"], **at["configurable"]}}
        bench.run(agent, given, run_config)
        assert model.script == []
        for seen in model.seen:
            accept(seen)
            assert spoken(seen) == numbers.shown(expected)
        current = config
        tips.append(agent.get_state(config).config)
        stored = [text for text in spoken(memory.history.messages(thread)) if text not in trimmed]
        assert stored == numbers.stored([*expected, answer])
        everything = spoken(memory.history.messages(thread, superseded=True))
        assert len(everything) == len(set(everything)), "something is stored twice"
