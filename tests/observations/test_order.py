"""A log is in the order of what was said, whatever was deleted, observed anew, imported or copied meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, message_to_dict
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_workingmem import Memory, Observation, ObservationOptions
from langchain_workingmem.importers import header
from tests.helpers.archives import unsealed
from tests.helpers.examples import examples
from tests.observations.noting import MARK, notes_in, observing, words
from tests.helpers.types import Make

THREADS = ["a", "b", "c"]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
lives = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "observe", "observe", "delete", "delete", "edit", "load", "clone"]),
        st.integers(0, 2),
        st.integers(0, 99),
    ),
    min_size=4,
    max_size=14,
)


class Backwards(BaseChatModel):
    """Writes a line for each two messages that it reads, the last ones first."""

    @property
    def _llm_type(self) -> str:
        return "backwards"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        marks = [
            " ".join(MARK.findall(text))
            for text in re.findall(r"<message [^>]*>(.*?)</message>", str(messages[1].text))
        ]
        lines = [
            f"- [{at + 1}-{min(at + 2, len(marks))}] noted {' '.join(marks[at : at + 2]) or 'nothing'} {at}"
            for at in range(0, len(marks), 2)
        ]
        return ChatResult(generations=[ChatGeneration(message=AIMessage("\n".join(reversed(lines))))])


def place(one: Observation) -> tuple[datetime, str, int]:
    """Return where a line belongs."""
    return one.said_at, one.positions[0][0], min(seq for _, seq in one.positions)


class Life:
    """A user with three threads."""

    def __init__(self, memory: Memory, scope: str, user: str) -> None:
        self.memory, self.scope, self.user = memory, scope, user
        self.marks = count()
        self.threads = [f"{user}-{name}" for name in THREADS]

    def rows(self, thread: str) -> list[str]:
        return [one.id or "" for one in self.memory.history.messages(thread)]

    def say(self, thread: str, number: int) -> None:
        texts = [words(next(self.marks), 4) for _ in range(2 + 2 * (number % 3))]
        turn = [HumanMessage(text) if at % 2 == 0 else AIMessage(text) for at, text in enumerate(texts)]
        self.memory.history.append(turn, thread_id=thread, user_id=self.user)

    def observe(self, thread: str, _: int) -> None:
        if self.rows(thread):
            self.memory.observations.observe(thread, user_id=self.user)

    def delete(self, thread: str, number: int) -> None:
        if rows := self.rows(thread):
            self.memory.history.delete([rows[number % len(rows)]], thread_id=thread)

    def edit(self, thread: str, number: int) -> None:
        if rows := self.memory.history.messages(thread):
            old = rows[number % len(rows)]
            new = old.model_copy(update={"content": words(next(self.marks), 4)})
            self.memory.history.update([new], thread_id=thread, user_id=self.user)

    def load(self, _: str, number: int) -> None:
        """Import a conversation of long ago, whose times are not in order."""
        thread = f"{self.user}-{len(self.threads)}"
        self.threads.append(thread)
        records = [
            {
                "kind": "message",
                "thread_id": thread,
                "stored_at": (LONG_AGO + timedelta(hours=(7 * at + number) % 50)).isoformat(),
                "message": message_to_dict(HumanMessage(words(next(self.marks), 4), id=f"{thread}-{at}")),
            }
            for at in range(2 + number % 5)
        ]
        self.memory.users.load([header(self.user), {"kind": "thread", "id": thread}, *records])
        self.observe(thread, number)

    def clone(self, thread: str, _: int) -> None:
        if self.rows(thread):
            self.threads.append(f"{self.user}-{len(self.threads)}")
            self.memory.threads.clone(thread, new_thread_id=self.threads[-1], user_id=self.user)

    def log_ids(self, thread: str) -> Any:
        return {"user_id": self.user} if self.scope == "user" else {"thread_id": thread}

    def logs(self, memory: Memory) -> Iterator[list[Observation]]:
        for thread in self.threads[:1] if self.scope == "user" else self.threads:
            yield [*memory.observations.get(**self.log_ids(thread))]

    def check(self, memory: Memory) -> None:
        for log in self.logs(memory):
            assert [*map(place, log)] == sorted(map(place, log))


@pytest.mark.parametrize("scope", ["thread", "user"])
@examples(30, server=True)
@given(life=lives)
def test_lines_are_in_the_order_of_what_was_said(make_memory: Make, life: list[Any], scope: Any) -> None:
    options = ObservationOptions(
        model=Backwards(), scope=scope, message_tokens=30, keep_tokens=0, batch_tokens=80, background=False
    )
    memory = make_memory(observations=options)
    this = Life(memory, scope, uuid4().hex)
    for step, thread, number in life:
        getattr(this, step)(this.threads[thread], number)
    for thread in this.threads:
        this.observe(thread, 0)
    this.check(memory)
    restored = make_memory(observations=options, key_prefix=f"{memory._core.state.keys.prefix}-restored")
    restored.users.load(unsealed(memory.users.export(this.user)))
    this.check(restored)
    for thread in this.threads:
        if this.rows(thread):
            context = memory.context("And now?", thread_id=thread, user_id=this.user)
            assert context.observations is not None
            told = MARK.findall(notes_in(context.messages))
            assert told == MARK.findall(" ".join(one.text for one in context.observations))


def test_a_message_that_is_observed_anew_stands_where_it_was_said(make_memory: Make) -> None:
    """Deleting one of the two messages behind the first line makes the other readable again; it is observed last."""
    memory = make_memory(observations=observing(Backwards(), message_tokens=60, keep_tokens=0))
    ids: Any = {"thread_id": "t", "user_id": "ann"}
    for at in range(0, 8, 2):
        memory.save_turn([HumanMessage(words(at), id=f"m{at}"), AIMessage(words(at + 1), id=f"m{at + 1}")], **ids)
    before = memory.observations.observe("t")
    assert MARK.findall(before.observations[0].text) == ["mark0x", "mark1x"]
    memory.history.delete(["m0"], thread_id="t")
    first, *others = memory.observations.observe("t")
    assert MARK.findall(first.text) == ["mark1x"]
    assert others == before.observations[1:]
    assert all(int(first.id) > int(one.id) for one in others)
    context = memory.context("And now?", **ids)
    assert MARK.findall(notes_in(context.messages))[0] == "mark1x"
