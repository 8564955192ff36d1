"""Lives of threads with scripted observers, and what must hold after each step, read from outside."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, OptionError
from langchain_workingmem._text.sending import provider_valid
from langchain_workingmem.derived import ThreadRows
from tests.derived.lives import Happenings
from tests.helpers.conversations import accept
from tests.helpers.models import calling
from tests.observations.observers import CANARY, PARTS, WRONG, Call, Observer, front_of, words


class World(Happenings):
    """Threads of two users, and two processes with the same observer."""

    def __init__(
        self, memories: Sequence[Memory], plain: Memory, seed: int, raw: redis.Redis, observer: Observer, scope: str
    ) -> None:
        super().__init__(memories, plain, seed, t0="ann", t1="ann", t2="bob")
        self.raw, self.observer, self.scope, self.prefix = raw, observer, scope, plain._core.state.keys.prefix
        self.checked = 0  # calls of the observer
        observer.during = self.meanwhile

    # ------------------------------------------------------------------ what happens

    def weights(self) -> dict[Callable[[str], None], float]:
        return {
            self.talk: 14, self.talk_with_list: 8, self.observe: 9, self.edit: 2, self.delete: 3, self.truncate: 1.5, self.fork: 2,
            self.take_line: 1.5, self.clear_log: 0.4, self.clear: 0.3, self.end: 0.3, self.transfer: 0.3,
        }  # fmt: skip

    def step(self) -> None:
        self.observer.part = self.chance.choice(PARTS)
        self.trace.append(self.observer.part)
        super().step()
        for memory in self.memories:
            memory.settled()

    def meanwhile(self, _: Call) -> None:
        """Now and then something happens while the model thinks."""
        if self.chance.random() < 0.1:
            memories, self.memories = self.memories, [self.plain]
            try:
                what = self.chance.choice([self.edit, self.delete, self.truncate])
                self.do(what, self.chance.choice([*self.threads]), "  meanwhile ")
            finally:
                self.memories = memories

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

    def talk(self, thread: str, front: Sequence[BaseMessage] = ()) -> None:
        """A turn of a program that passes only what is new, or of a client that sends its whole list."""
        memory, new = self.memory, self.new()
        memory.context([*front, new[0]], **self.ids(thread))
        memory.save_turn([*front, *new], **self.ids(thread))

    def talk_with_list(self, thread: str) -> None:
        with suppress(OptionError):  # what is older than the thread is refused
            self.talk(thread, self.list_of(thread))

    def fork(self, thread: str) -> None:
        """A client asks an earlier question anew."""
        current = self.plain.history.messages(thread)
        places = [at for at, one in enumerate(current) if isinstance(one, HumanMessage)]
        if places:
            self.lists.setdefault(thread, []).append(current)
            self.talk(thread, current[: self.chance.choice(places[-4:])])

    def observe(self, thread: str) -> None:
        self.memory.observations.observe(thread, user_id=self.threads[thread])

    def take_line(self, thread: str) -> None:
        log = self.plain.observations.get(thread_id=thread)
        if log:
            line = self.chance.choice(log.observations)
            now = self.memory.observations.delete(line.id, thread_id=thread)
            assert line.id not in [one.id for one in now]

    def clear_log(self, thread: str) -> None:
        assert not self.memory.observations.clear(thread_id=thread)

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
        return {*CANARY.findall(" ".join(map(_text, self.all_of(thread))))}

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
        shown_rows = [row.message for row in rows if row.place not in covered]
        valid = {one.id for one in provider_valid([*shown_rows, HumanMessage("?", id="?")])}
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
