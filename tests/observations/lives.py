"""Lives of threads with scripted observers, and what must hold after each step, read from outside."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, OptionError
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem.derived import ThreadRows
from tests.helpers.conversations import accept
from tests.helpers.models import calling
from tests.observations.observers import CANARY, PARTS, WRONG, Call, Observer, front_of, words


@dataclass
class World:
    """Threads of two users, the memories of two processes with the same observer, and a third one that only looks."""

    raw: redis.Redis
    prefix: str
    memories: Sequence[Memory]
    plain: Memory  # sync, for what happens while a model thinks, and to look
    observer: Observer
    scope: str
    seed: int
    threads: dict[str, str] = field(default_factory=lambda: {"t0": "ann", "t1": "ann", "t2": "bob"})
    lists: dict[str, list[list[BaseMessage]]] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    checked: int = 0  # calls of the observer
    count: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.observer.during = self.meanwhile

    @property
    def memory(self) -> Memory:
        return self.chance.choice(self.memories)

    # ------------------------------------------------------------------ what happens

    def step(self) -> None:
        steps = {
            self.talk: 14, self.talk_with_list: 8, self.observe: 9, self.edit: 2, self.delete: 3, self.truncate: 1.5, self.fork: 2,
            self.take_line: 1.5, self.clear_log: 0.4, self.clear: 0.3, self.end: 0.3, self.transfer: 0.3,
        }  # fmt: skip
        do = self.chance.choices([*steps], [*steps.values()])[0]
        thread = self.chance.choice([*self.threads])
        self.observer.part = self.chance.choice(PARTS)
        self.trace.append(f"{do.__name__} {thread} ({self.observer.part})")
        do(thread)
        for memory in self.memories:
            memory.settled()

    def meanwhile(self, _: Call) -> None:
        """Now and then something happens while the model thinks."""
        if self.chance.random() < 0.1:
            thread = self.chance.choice([*self.threads])
            do = self.chance.choice([self.edit, self.delete, self.truncate])
            self.trace.append(f"  meanwhile {do.__name__} {thread}")
            memories, self.memories = self.memories, [self.plain]
            try:
                do(thread)
            finally:
                self.memories = memories

    def ids(self, thread: str) -> dict[str, Any]:
        return {"thread_id": thread, "user_id": self.threads[thread]}

    def new(self) -> list[BaseMessage]:
        """Return a turn: a question, perhaps tools, an answer."""
        made: list[BaseMessage] = [HumanMessage(self.text(), id=self.id())]
        if self.chance.random() < 0.3:
            call = calling(("look", {}), ("look", {}), text=self.text(), id=self.id())
            made += [call, *(ToolMessage(self.text(), id=self.id(), tool_call_id=one["id"]) for one in call.tool_calls)]
        return [*made, AIMessage(self.text(), id=self.id())]

    def id(self) -> str:
        return f"m{self.seed}-{self.count}"

    def text(self) -> str:
        self.count += 1
        return words(self.count, self.chance.choice([2, 8, 20]))

    def talk(self, thread: str) -> None:
        """A turn of a program that passes only what is new."""
        memory, new = self.memory, self.new()
        memory.context(new[:1], **self.ids(thread))
        memory.save_turn(new, **self.ids(thread))

    def talk_with_list(self, thread: str) -> None:
        """A turn of a client that sends its whole list, perhaps one from before, or with another end."""
        lists = self.lists.setdefault(thread, [])
        lists.append(self.plain.history.messages(thread))
        chosen = lists[-1] if self.chance.random() < 0.7 else self.chance.choice(lists[-5:])
        memory, new = self.memory, self.new()
        with suppress(OptionError):  # what is older than the thread is refused
            memory.context([*chosen, new[0]], **self.ids(thread))
            memory.save_turn([*chosen, *new], **self.ids(thread))

    def fork(self, thread: str) -> None:
        """A client asks an earlier question anew."""
        current, memory, new = self.plain.history.messages(thread), self.memory, self.new()
        places = [at for at, one in enumerate(current) if isinstance(one, HumanMessage)]
        if places:
            cut = current[: self.chance.choice(places[-4:])]
            self.lists.setdefault(thread, []).append(current)
            memory.context([*cut, new[0]], **self.ids(thread))
            memory.save_turn([*cut, *new], **self.ids(thread))

    def observe(self, thread: str) -> None:
        self.memory.observations.observe(thread, user_id=self.threads[thread])

    def some(self, thread: str) -> BaseMessage | None:
        found = self.plain.history.messages(thread, superseded=True)
        return self.chance.choice(found) if found else None

    def edit(self, thread: str) -> None:
        if one := self.some(thread):
            self.memory.history.update([one.model_copy(update={"content": self.text()})], thread_id=thread)

    def delete(self, thread: str) -> None:
        if one := self.some(thread):
            self.memory.history.delete([str(one.id)], thread_id=thread)

    def truncate(self, thread: str) -> None:
        current = self.plain.history.messages(thread)
        if current and len({one.id for one in current}) == len(current):
            self.memory.history.truncate(thread, after=str(self.chance.choice(current[-6:]).id))

    def take_line(self, thread: str) -> None:
        log = self.plain.observations.get(thread_id=thread)
        if log:
            line = self.chance.choice(log.observations)
            now = self.memory.observations.delete(line.id, thread_id=thread)
            assert line.id not in [one.id for one in now]

    def clear_log(self, thread: str) -> None:
        assert not self.memory.observations.clear(thread_id=thread)

    def clear(self, thread: str) -> None:
        self.memory.history.clear(thread)

    def end(self, thread: str) -> None:
        self.memory.threads.delete(thread)

    def transfer(self, thread: str) -> None:
        if self.plain.threads.get(thread):
            owner = self.threads[thread]
            self.threads[thread] = "bob" if owner == "ann" else "ann"
            self.memory.threads.transfer(thread, user_id=owner, to=self.threads[thread])

    # ------------------------------------------------------------------ what must hold

    def check(self) -> None:
        stored = {thread: self.words_digest(thread) for thread in self.threads}
        self.check_keys({word for found in stored.values() for word in found})
        problems = [problem for call in self.observer.calls for problem in call.problems]
        assert not problems, problems
        for call in self.observer.calls[self.checked :]:
            owners = [{one for one in self.threads if word in stored[one]} for word in call.canaries]
            assert not owners or set.union(*owners) or not set.intersection(*owners)
        self.checked = len(self.observer.calls)
        for thread in self.threads:
            self.check_thread(self.memory, thread, with_list=self.chance.random() < 0.5)

    def words_digest(self, thread: str) -> set[str]:
        found = self.plain.history.messages(thread, superseded=True)
        return {*CANARY.findall(" ".join(str(one.text) for one in found))}

    def check_keys(self, stored: set[str]) -> None:
        """No key holds a word of a message that is not stored any more, or of a bad answer."""
        reads: Any = {b"hash": self.raw.hgetall, b"string": self.raw.get}
        for key in self.raw.scan_iter(f"{self.prefix}:*", count=10_000):
            kind: Any = self.raw.type(key)
            text = repr(reads[kind](key)) if kind in reads else repr(self.raw.zrange(key, 0, -1))
            assert {*CANARY.findall(text)} <= stored, (key, {*CANARY.findall(text)} - stored)
            assert WRONG not in text, key

    def check_thread(self, memory: Memory, thread: str, *, with_list: bool) -> None:
        """Each current message reaches the model once: as it is, or through a shown line that covers it."""
        rows = self.plain.history.page(thread, limit=10_000).items
        own = {*CANARY.findall(" ".join(str(row.message.text) for row in rows))}
        asked = HumanMessage("what now?")
        given = [*(row.message for row in rows), asked] if with_list else [asked]
        context = memory.context(given, **self.ids(thread), read_only=True)
        accept(context.messages)
        shown = memory._core.run(ThreadRows(memory._core.state, thread, None, "observations").read())
        covered: Any = shown.covered
        ids = [str(row.message.id) for row in rows]
        valid = {one.id for one in provider_valid([*(row.message for row in rows), HumanMessage("?", id="?")])}
        raw = [str(one.id) for one in context.messages if one.id in ids]
        hidden = {str(row.message.id) for row in rows if row.place in covered}
        expected = [id for id in ids if id in valid and id not in hidden]
        while with_list and expected != raw and rows and isinstance(rows[-1].message, HumanMessage):
            valid |= {rows.pop().message.id}  # questions right before the question stand in the present turn of a list
            expected = [
                id for id in ids if id in valid and (id not in hidden or id not in [r.message.id for r in rows])
            ]
        assert raw == expected, (thread, with_list, raw, expected)
        if self.scope == "user":
            mine = [one for one, owner in self.threads.items() if owner == self.threads[thread]]
            own = own.union(*(CANARY.findall(" ".join(map(_text, self.plain.history.messages(one)))) for one in mine))
        text = "\n".join([*context.system, *map(_text, context.messages)])
        assert {*CANARY.findall(text)} <= own, (thread, {*CANARY.findall(text)} - own)
        assert WRONG not in text
        log = context.observations.observations
        assert len({one.id for one in log}) == len(log)
        block = "\n".join(map(front_of, context.messages))
        tokens = re.findall(r"k\d+n\d+e", block + " ".join(context.system))
        assert sorted(tokens) == sorted(re.findall(r"k\d+n\d+e", " ".join(one.text for one in log))), (tokens, log)
        assert block.count("</observations>") == bool(log), "what a model writes is escaped"


def _text(message: BaseMessage) -> str:
    return str(message.text)
