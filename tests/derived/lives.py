"""Lives of threads with rows, at random, and an oracle that recomputes what must hold from what the server holds."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson
import redis
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, OptionError
from langchain_workingmem.derived import NewRow, Ranges, ThreadRows

KINDS = ("log", "value")
WORD = re.compile(r"kw\d+x\d+")  # in each message another one
USERS = ("ann", "bob")


@dataclass
class Stored:
    """What the server holds of a thread."""

    order: set[int]  # seqs of the current messages
    bodies: dict[int, str]  # of all messages, without the sign in front
    heads: dict[int, dict[str, Any]]
    texts: dict[int, dict[str, Any]]  # bodies of rows
    fields: dict[str, str]
    about: str  # created_at and the count of edits; "" without a thread

    @classmethod
    def of(cls, raw: redis.Redis, memory: Memory, thread: str) -> Stored:
        bare, keys = raw.pipeline(transaction=False), memory._core.state.keys.of(thread)
        for key in (keys.rows, keys.messages):
            bare.hgetall(key)
        bare.zrange(keys.order, 0, -1, withscores=True)
        bare.hmget(keys.thread, "created_at", "edits")
        rows, messages, order, about = bare.execute()
        fields = {name.decode(): value.decode() for name, value in rows.items()}
        return cls(
            order={int(score) for _, score in order},
            bodies={int(seq): body.decode().lstrip("-!") for seq, body in messages.items()},
            heads={head["id"]: head for head in orjson.loads(fields.get("heads", "[]"))},
            texts={int(name[2:]): orjson.loads(text) for name, text in fields.items() if name[:2] == "b:"},
            fields=fields,
            about=b" ".join((about[0], about[1] or b"0")).decode() if about[0] else "",
        )

    def seqs(self, ranges: Sequence[int]) -> set[int]:
        """Return the messages in ranges."""
        within = Ranges.of(ranges)
        return {seq for seq in self.bodies if seq in within}

    def is_current(self, head: dict[str, Any]) -> bool:
        return self.seqs(head["cites"]) <= self.order

    def shown(self, view: str) -> list[int]:
        """Return the rows that a reader of a kind is shown, or (<kind>+) those that wait."""
        pairs = Ranges.of(orjson.loads(self.fields.get(f"shown:{view}", "[]"))).pairs
        return [id for low, high in pairs for id in range(low, high + 1)]

    def is_shown(self, id: int) -> bool:
        """The rule: all that is cited is current, and nothing is shown that replaced it, in one step or in several."""
        head, above = self.heads[id], self.heads[id].get("by")
        while above in self.heads:
            if self.is_shown(above):
                return False
            above = self.heads[above].get("by")
        return self.is_current(head)


class Happenings:
    """Threads, the memories of two processes, one that only looks, and what happens to messages by chance."""

    def __init__(self, memories: Sequence[Memory], plain: Memory, seed: int, **threads: str) -> None:
        self.memories, self.plain, self.seed = memories, plain, seed
        self.threads = threads  # with their owners
        self.lists: dict[str, list[list[BaseMessage]]] = {}  # as clients may still have them
        self.chance, self.trace, self.count = random.Random(seed), list[str](), 0

    def weights(self) -> dict[Callable[[str], None], float]:
        """Return what may happen to a thread, and how often it does."""
        raise NotImplementedError

    def check(self) -> None:
        """What must hold after each step."""
        raise NotImplementedError

    def text(self) -> str:
        """Return words that nobody has said."""
        raise NotImplementedError

    def live(self, steps: int) -> None:
        for _ in range(steps):
            try:
                self.step()
                self.check()
            except Exception as error:
                error.add_note("\n".join(self.trace[-14:]))
                raise

    def step(self) -> None:
        weights = self.weights()
        self.do(self.chance.choices([*weights], [*weights.values()])[0], self.chance.choice([*self.threads]))

    def do(self, what: Callable[[str], None], thread: str, note: str = "") -> None:
        self.trace.append(f"{note}{what.__name__} {thread}")
        what(thread)

    @property
    def memory(self) -> Memory:
        return self.chance.choice(self.memories)

    def ids(self, thread: str) -> dict[str, Any]:
        return {"thread_id": thread, "user_id": self.threads[thread]}

    def some(self, values: Iterable[Any], most: int) -> list[Any]:
        found = [*values]
        return self.chance.sample(found, min(len(found), self.chance.randint(1, most))) if found else []

    def all_of(self, thread: str) -> list[BaseMessage]:
        return self.plain.history.messages(thread, superseded=True)

    def edit(self, thread: str) -> None:
        for one in self.some(self.all_of(thread), 1):
            self.memory.history.update([one.model_copy(update={"content": self.text()})], thread_id=thread)

    def delete(self, thread: str) -> None:
        self.memory.history.delete([str(one.id) for one in self.some(self.all_of(thread), 3)], thread_id=thread)

    def truncate(self, thread: str) -> None:
        current = self.plain.history.messages(thread)
        if current and len({one.id for one in current}) == len(current):
            self.memory.history.truncate(thread, after=str(self.chance.choice(current[-6:]).id))

    def list_of(self, thread: str) -> list[BaseMessage]:
        """Return the list that a client has: that of now, or one from before."""
        lists = self.lists.setdefault(thread, [])
        lists.append(self.plain.history.messages(thread))
        return self.chance.choice((lists[-1], self.chance.choice(lists[-6:])))

    def exists(self, thread: str) -> bool:
        return self.plain.threads.get(thread) is not None

    def transfer(self, thread: str) -> None:
        if self.exists(thread):
            owner = self.threads[thread]
            self.threads[thread] = USERS[owner == "ann"]
            self.memory.threads.transfer(thread, user_id=owner, to=self.threads[thread])

    def end(self, thread: str) -> None:
        self.memory.threads.delete(thread)

    def clear(self, thread: str) -> None:
        self.memory.history.clear(thread)


class Life(Happenings):
    """Threads with rows that workers write."""

    def __init__(self, raw: redis.Redis, memories: Sequence[Memory], seed: int) -> None:
        super().__init__(memories, memories[0], seed, **{f"t{seed}": "ann"})
        self.raw = raw
        self.made_of: dict[tuple[str, str, int], dict[int, str]] = {}  # bodies of messages, as a row found them

    # ------------------------------------------------------------------ what happens

    def weights(self) -> dict[Callable[[str], None], float]:
        return {
            self.append: 12, self.edit: 3, self.delete: 4, self.truncate: 3, self.save_list: 7, self.clone: 0.6, self.transfer: 0.5,
            self.end: 0.3, self.clear: 0.4, self.commit: 34, self.condense: 12, self.activate: 4, self.take_line: 3, self.clear_rows: 0.5,
        }  # fmt: skip

    def text(self) -> str:
        self.count += 1
        return f"say kw{self.seed}x{self.count}"

    def new(self) -> list[BaseMessage]:
        """Return a few messages that nobody has said."""
        kinds = [self.chance.choice((HumanMessage, AIMessage)) for _ in range(self.chance.randint(1, 4))]
        return [kind(self.text(), id=f"m{self.count}") for kind in kinds]

    def append(self, thread: str) -> None:
        self.memory.history.append(self.new(), **self.ids(thread))

    def save_list(self, thread: str) -> None:
        """A client saves the list that it has, or one whose end it has edited."""
        chosen = self.list_of(thread)
        cut = self.chance.randint(0, len(chosen)) if self.chance.random() < 0.6 else len(chosen)
        with suppress(OptionError):  # what is older than the thread is refused
            self.memory.save_turn([*chosen[:cut], *self.new()], **self.ids(thread))

    def clone(self, thread: str) -> None:
        if self.exists(thread) and len(self.threads) < 3:
            name = f"c{self.seed}x{len(self.trace)}"
            self.memory.threads.clone(thread, new_thread_id=name)
            self.threads[name] = self.threads[thread]

    def clear(self, thread: str) -> None:
        super().clear(thread)
        self.made_of.clear()  # rows are numbered anew

    # ------------------------------------------------------------------ workers

    def write(self, thread: str, kind: str, rows: Callable[[Stored], list[NewRow]], **more: Any) -> None:
        """Read the work, make rows of what is stored, and commit them: perhaps after something else has happened."""
        memory, owner = self.memory, self.threads[thread]
        state = memory._core.state
        stored = self.look(thread)
        if not stored.about:
            return
        read = memory._core.run(ThreadRows(state, thread, owner, kind).read())
        new = rows(stored)
        if self.chance.random() < 0.15:
            meanwhile = [self.append, self.edit, self.delete, self.truncate, self.save_list, self.take_line]
            self.do(self.chance.choice(meanwhile), thread, "  meanwhile ")
        before = self.look(thread)
        done = memory._core.run(ThreadRows(state, thread, owner, kind).commit(read, new, **more))
        assert (done is None) == (before.about != read.stamp)
        if done is not None and new:
            assert (done == []) == _is_refused(before, kind, new[0]), (done, new[0])

    def commit(self, thread: str) -> None:
        """Rows about messages that no row covers; now and then about others, which is refused."""
        kind, waits = self.chance.choice(KINDS), self.chance.random() < 0.3

        def rows(stored: Stored) -> list[NewRow]:
            own = [head for head in stored.heads.values() if head["kind"] == kind]
            taken = {seq for head in own if stored.is_shown(head["id"]) for seq in stored.seqs(head["covers"])}
            free = sorted(stored.order - taken) if self.chance.random() < 0.85 else sorted(stored.order)
            found, free = [], free[: self.chance.randint(1, 8)]
            while free:
                size = self.chance.randint(1, 4)
                part, free = free[:size], free[size:]
                cites = sorted(self.some(part, len(part)))
                found.append(self.row(stored, cites, part, waits=waits))
                if self.chance.random() < 0.2:
                    found.append(self.row(stored, cites, (), waits=waits))
            return found

        self.write(thread, kind, rows)

    def row(self, stored: Stored, cites: Sequence[int], covers: Sequence[int], *, waits: bool = False) -> NewRow:
        words = " ".join(WORD.findall(" ".join(stored.bodies[seq] for seq in cites)))
        return NewRow({"at": self.count, "text": words}, cites, covers, waits=waits)

    def condense(self, thread: str) -> None:
        kind, is_first = self.chance.choice(KINDS), self.chance.random() < 0.7

        def rows(stored: Stored) -> list[NewRow]:
            shown = sorted(stored.shown(kind))
            chosen = shown[:4] if is_first else sorted(self.some(shown, 4))
            words = " ".join(str(stored.texts[id]["text"]) for id in chosen)
            return [NewRow({"at": self.count, "text": words}, replaces=chosen)] if chosen else []

        self.write(thread, kind, rows)

    def activate(self, thread: str) -> None:
        kind = self.chance.choice(KINDS)
        self.write(thread, kind, lambda _: [], activate=True)

    def take_line(self, thread: str) -> None:
        """A person deletes a row: an empty one stands in its place."""
        kind = self.chance.choice(KINDS)
        if chosen := self.some(self.look(thread).shown(kind), 1):
            self.write(thread, kind, lambda _: [NewRow({"at": 0, "text": ""}, replaces=chosen)], drop=chosen)

    def clear_rows(self, thread: str) -> None:
        self.write(thread, self.chance.choice(KINDS), lambda _: [], clear=True)

    # ------------------------------------------------------------------ what must hold

    def look(self, thread: str) -> Stored:
        return Stored.of(self.raw, self.memories[0], thread)

    def check(self) -> None:
        for thread in self.threads:
            stored = self.look(thread)
            self.check_sources(thread, stored)
            for kind in KINDS:
                self.check_views(thread, stored, kind)

    def check_sources(self, thread: str, stored: Stored) -> None:
        """Rows stand on messages as they are now, and hold words of no others."""
        assert stored.heads.keys() == stored.texts.keys()
        words = {*WORD.findall(" ".join(stored.bodies.values()))}
        assert {*WORD.findall(" ".join(stored.fields.values()))} <= words
        for id, head in stored.heads.items():
            named = stored.seqs(head["cites"]) | stored.seqs(head["covers"])
            lows = {*[*head["cites"]][::2], *[*head["covers"]][::2]}
            assert lows <= named, ("a deleted message", id, head)
            made_of = self.made_of.setdefault(
                (thread, stored.about.split()[0], id), {seq: stored.bodies[seq] for seq in named}
            )
            assert made_of == {seq: stored.bodies[seq] for seq in named}, ("an edited message", id, head)

    def check_views(self, thread: str, stored: Stored, kind: str) -> None:
        """What is shown follows the rules, and both processes read it."""
        own = {id: head for id, head in stored.heads.items() if head["kind"] == kind}
        shown = {id for id in own if stored.is_shown(id)}
        flagged = {*stored.shown(kind), *stored.shown(f"{kind}+")}
        assert all(own[id]["waits"] for id in stored.shown(f"{kind}+"))
        assert flagged == shown, (thread, kind, flagged, shown, {id: own[id] for id in flagged ^ shown})
        covers = [seq for id in shown for seq in stored.seqs(own[id]["covers"])]
        assert len(covers) == len({*covers}), ("covered twice", thread, kind, {id: own[id] for id in shown})
        for memory in self.memories:
            read = memory._core.run(ThreadRows(memory._core.state, thread, None, kind).read())
            assert read.rows == {id: stored.texts[id] for id in stored.shown(kind)}, (thread, kind)
            for ranges, waits in ((read.covered, False), (read.ahead, True)):
                wanted = {seq for id in shown if own[id]["waits"] is waits for seq in stored.seqs(own[id]["covers"])}
                assert {seq for seq in stored.bodies if seq in ranges} == wanted, (thread, kind)


def _is_refused(before: Stored, kind: str, row: NewRow) -> bool:
    """Tell whether the first row of a commit must be refused."""
    if not {*row.cites, *row.covers} <= before.bodies.keys() or not {*row.replaces} <= before.heads.keys():
        return True
    covers = {*row.covers}.union(*(before.seqs(before.heads[id]["covers"]) for id in row.replaces))
    for id, head in before.heads.items():
        is_other = head["kind"] == kind and id not in row.replaces and before.is_shown(id)
        if is_other and (covers & before.seqs(head["covers"]) or head["by"] in row.replaces):
            return True
    return False
