"""Every public operation once: for tests that must leave none out.

The list runs from top to bottom, each operation finds what it needs; by itself one runs after its `prepare`.
`test_both_faces.py` fails while a public method is missing here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.base import GetOp, SearchItem, SearchOp

from langchain_workingmem import (
    FileOptions,
    Memory,
    ObservationOptions,
    RecallOptions,
    TitleOptions,
    WorkingMemoryOptions,
)
from langchain_workingmem.errors import FileMissingError
from langchain_workingmem.faces.tools import AWAY
from langchain_workingmem.options import Scope
from langchain_workingmem.store import RedisMemoryStore
from tests.helpers.checkpoints import put_states
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.wings import Echo, Noting


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who calls: a user in a thread, through one of the faces."""

    memory: Memory
    runner: asyncio.Runner | None = None  # for async calls of tools, nodes and retrievers
    thread: str = "t"
    user: str = "u"
    secret: str = "secret"  # which stands in all that this caller stores
    said_under: tuple[str, ...] = ("m0", "m1", "m2", "m3")  # ids of messages
    author: str | None = None

    @property
    def owner(self) -> dict[str, Any]:
        return {"user_id": self.user}

    @property
    def text(self) -> str:
        return f"one {self.secret}\ntwo\nbetween\nthree\n"

    @property
    def ids(self) -> dict[str, Any]:
        return {"thread_id": self.thread, "user_id": self.user}

    def beside(self, name: str) -> str:
        """Name another thread of the same caller."""
        long = len(self.thread.encode()) > 500
        return f"{name} {hashlib.sha1(self.thread.encode()).hexdigest() if long else self.thread}"

    def invoke(self, target: Any, *arguments: Any) -> Any:
        config = {"configurable": self.ids}
        if self.runner is None:
            return target.invoke(*arguments, config)
        return self.runner.run(target.ainvoke(*arguments, config))

    def tool(self, name: str, **arguments: Any) -> Any:
        (tool,) = self.memory.tools(include=[name])
        said = self.invoke(tool, arguments)
        assert "refused" not in said, said
        assert "NOPERM" not in said, said
        assert said != AWAY
        return said

    def said(self) -> list[Any]:
        """What the two messages of a turn are; saving them again changes nothing."""
        question, answer, *_ = self.said_under
        return [
            HumanMessage(f"my pin is {self.secret}", id=question, name=self.author),
            AIMessage(f"noted {self.secret}", id=answer, name=self.author),
        ]


def options(scope: Scope = "user") -> dict[str, Any]:
    """Switch everything on."""
    tools: Any = ("get", "update", "clear")
    return {
        "embeddings": WordEmbeddings(),
        "recall": RecallOptions(),
        "working_memory": WorkingMemoryOptions(
            template="", scope=scope, tools=tools, keeper=Noting(), background=False
        ),
        "observations": ObservationOptions(
            model=Echo(), message_tokens=1, keep_tokens=0, block_after=100_000, background=False
        ),
        "title": TitleOptions(model=FakeListChatModel(responses=["A title"])),
        "files": FileOptions(),
    }


def _titled(c: Caller) -> None:
    place = c.beside("untitled")
    c.memory.history.append(c.said(), thread_id=place, user_id=c.user)
    wait_until(lambda: (thread := c.memory.threads.get(place)) and thread.title == "A title")


def _chat_history(c: Caller) -> Any:
    history = c.memory.chat_history(c.beside("chat"), c.user)
    if c.runner is None:
        history.add_messages(c.said())
        seen = history.messages
        history.clear()
    else:
        c.runner.run(history.aadd_messages(c.said()))
        seen = c.runner.run(history.aget_messages())
        c.runner.run(history.aclear())
    return seen


def _backfill(c: Caller) -> Any:
    saver = InMemorySaver()
    put_states(saver, c.beside("checkpointed"), [c.said()])
    report = c.memory.threads.backfill(saver, user_id=c.user, progress=False)
    return report.threads + report.known  # a repeat after a lost reply knows the thread


Prepare = Callable[[Caller], None]


def start_from_nothing(c: Caller) -> None:
    """Prepare nothing."""


def talk(c: Caller) -> None:
    c.memory.threads.create(**c.ids, title=c.secret, metadata={"kind": "pin"})
    c.memory.history.append(c.said(), **c.ids)


def note(c: Caller) -> None:
    c.memory.working_memory.update("likes tea", user_id=c.user)
    c.memory.working_memory.update("rides a bicycle", user_id=c.user)


def no_files(c: Caller) -> None:
    with suppress(FileMissingError):
        c.memory.files.delete("/", purge=True, **c.owner)


def _after(*steps: Prepare, then: Callable[[Caller], object] = lambda _: None) -> Prepare:
    def prepare(c: Caller) -> None:
        for step in (*steps, then):
            step(c)

    return prepare


talk_and_note = _after(talk, note)
talk_on = _after(talk, then=lambda c: c.memory.history.append([HumanMessage("and now?", id=c.said_under[2])], **c.ids))
talk_and_observe = _after(talk_on, then=lambda c: c.memory.observations.observe(c.thread))
talk_and_keep = _after(talk, then=lambda c: c.memory.working_memory.keep(c.thread, user_id=c.user))
talk_and_clone = _after(talk, then=lambda c: c.memory.threads.clone(c.thread, new_thread_id=c.beside("copy")))
file = _after(no_files, then=lambda c: c.memory.files.write("/notes/a.md", c.text, **c.owner))
file_twice = _after(file, then=lambda c: c.memory.files.edit("/notes/a.md", "one", "ONE", **c.owner))


def first_line(c: Caller) -> str:
    found: str = c.memory.observations.get(**c.ids).observations[0].id
    return found


def kept_path(c: Caller) -> str:
    """Return a path that a keeper has set; the first of all, where it has not."""
    paths = sorted(c.memory.working_memory.get(**c.ids).timeline or ())
    return next((one for one in paths if "my pin" in one), paths[0])


@dataclass(frozen=True)
class Operation:
    call: Callable[[Caller], Any]
    prepare: Prepare | None = None  # None: never by itself, for it is more than one step, or a face
    at_most_once: bool = False  # a lost reply is an error, because nothing may happen twice
    bare: bool = False  # prepared without vectors


def _on(call: Callable[[Memory, Caller], Any], prepare: Prepare | None = None, **how: bool) -> Operation:
    return Operation(lambda c: call(c.memory, c), prepare, **how)


# By the name of the method, or of the face; what follows a method's name in brackets tells a second call of it.
OPERATIONS: dict[str, Operation] = {
    "setup": _on(lambda m, c: m.setup()),
    "threads.create": _on(
        lambda m, c: m.threads.create(**c.ids, title=c.secret, metadata={"kind": "pin"}),
        start_from_nothing,
        at_most_once=True,
    ),
    "threads.create (with working memory)": _on(
        lambda m, c: m.threads.create(
            user_id=c.user, thread_id=c.beside("seeded"), title=c.secret, working_memory=f"knows {c.secret}"
        )
    ),
    "history.append": _on(lambda m, c: m.history.append(c.said(), **c.ids), start_from_nothing),
    "save_turn": _on(
        lambda m, c: m.save_turn([*c.said(), HumanMessage("and more", id=c.said_under[2])], **c.ids), talk
    ),
    "history.update": _on(
        lambda m, c: m.history.update([AIMessage(f"changed {c.secret}", id=c.said_under[1])], **c.ids), talk
    ),
    "history.messages": _on(
        lambda m, c: m.history.messages(c.thread, last=9, roles=["human"], since=datetime(2000, 1, 1, tzinfo=UTC)), talk
    ),
    "history.page": _on(lambda m, c: m.history.page(c.thread, limit=1), talk),
    "history.for_user": _on(lambda m, c: m.history.for_user(c.user), talk),
    "context": _on(lambda m, c: m.context([HumanMessage("the pin", id=c.said_under[3])], **c.ids), talk_and_note),
    "recall.search": _on(lambda m, c: m.recall.search("the pin", user_id=c.user, thread_id=c.thread), talk),
    "recall.reindex": _on(lambda m, c: m.recall.reindex(user_id=c.user, progress=False), talk, bare=True),
    "threads.get": _on(lambda m, c: m.threads.get(c.thread), talk),
    "threads.list": _on(lambda m, c: m.threads.list(user_id=c.user, metadata={"kind": "pin"}), talk),
    "threads.update": _on(
        lambda m, c: m.threads.update(c.thread, title=f"Keys {c.secret}", metadata={"kind": None, "tags": [1]}), talk
    ),
    "threads.clone": _on(lambda m, c: m.threads.clone(c.thread, new_thread_id=c.beside("copy"), title=c.secret), talk),
    "threads.lineage": _on(lambda m, c: m.threads.lineage(c.beside("copy")), talk_and_clone),
    "threads.transfer": _on(
        lambda m, c: m.threads.transfer(c.beside("copy"), user_id=c.user, to=c.beside("heir")),
        talk_and_clone,
        at_most_once=True,
    ),
    "threads.backfill": Operation(_backfill, start_from_nothing),
    "working_memory.update": _on(lambda m, c: m.working_memory.update(f"likes {c.secret}", **c.ids), note),
    "working_memory.get": _on(lambda m, c: m.working_memory.get(**c.ids), note),
    "working_memory.clear": _on(lambda m, c: m.working_memory.clear(**c.ids), note),
    "working_memory.revisions": _on(lambda m, c: m.working_memory.revisions(**c.ids), note),
    "working_memory.revert": _on(lambda m, c: m.working_memory.revert(1, **c.ids), note),
    "working_memory.keep": _on(lambda m, c: m.working_memory.keep(c.thread, user_id=c.user), talk),
    "working_memory.undo": _on(lambda m, c: m.working_memory.undo(kept_path(c), **c.ids), talk_and_keep),
    "observations.observe": _on(lambda m, c: m.observations.observe(c.thread), talk_on),
    "observations.get": _on(lambda m, c: m.observations.get(**c.ids), talk_and_observe),
    "observations.sources": _on(lambda m, c: m.observations.sources(first_line(c), **c.ids), talk_and_observe),
    "observations.delete": _on(lambda m, c: m.observations.delete(first_line(c), **c.ids), talk_and_observe),
    "observations.clear": _on(lambda m, c: m.observations.clear(**c.ids), talk_and_observe),
    "files.write": _on(lambda m, c: m.files.write("/notes/a.md", c.text, **c.owner), no_files),
    "files.edit": _on(lambda m, c: m.files.edit("/notes/a.md", "two", f"2 {c.secret}", **c.owner), file),
    "files.write (from a base)": _on(
        lambda m, c: m.files.write("/notes/a.md", f"{c.text}end\n", base_revision=2, by="ann", **c.owner), file_twice
    ),
    "files.insert": _on(lambda m, c: m.files.insert("/notes/a.md", 1, c.secret, **c.owner), file),
    "files.read": _on(lambda m, c: m.files.read("/notes/a.md", **c.owner), file),
    "files.list": _on(lambda m, c: m.files.list("/notes", **c.owner), file),
    "files.glob": _on(lambda m, c: m.files.glob("*.md", **c.owner), file),
    "files.grep": _on(lambda m, c: m.files.grep("three", path="/notes", **c.owner), file),
    "files.history": _on(lambda m, c: m.files.history("/notes/a.md", **c.owner), file_twice),
    "files.revert": _on(lambda m, c: m.files.revert("/notes/a.md", 1, **c.owner), file_twice),
    "files.rename": _on(lambda m, c: m.files.rename("/notes", f"/{c.secret}", **c.owner), file),
    "files.usage": _on(lambda m, c: m.files.usage(**c.owner), file),
    "files.delete (and forget)": _on(lambda m, c: m.files.delete("/", purge=True, **c.owner), file),
    "files.write (again)": _on(lambda m, c: m.files.write("/notes/a.md", c.text, **c.owner), no_files),
    "files.delete": _on(lambda m, c: m.files.delete("/", **c.owner), file),
    "files.write (to keep)": _on(lambda m, c: m.files.write("/kept.md", c.text, **c.owner), no_files),
    "titles": Operation(_titled),
    "chat_history": Operation(_chat_history),
    "load_node": _on(lambda m, c: c.invoke(m.load_node(), {"messages": [HumanMessage("the pin", id="q")]})),
    "save_node": _on(lambda m, c: c.invoke(m.save_node(), {"messages": [HumanMessage("bye", id=c.said_under[3])]})),
    "as_retriever": _on(lambda m, c: c.invoke(m.as_retriever(), "the pin")),
    "update_working_memory": _on(lambda m, c: c.tool("update_working_memory", memory=f"likes {c.secret} too")),
    "get_working_memory": _on(lambda m, c: c.tool("get_working_memory")),
    "clear_working_memory": _on(lambda m, c: c.tool("clear_working_memory")),
    "search_memory": _on(lambda m, c: c.tool("search_memory", query="the pin")),
    "settled": _on(lambda m, c: m.settled()),
    "doctor": _on(lambda m, c: m.doctor()),
    "history.truncate": _on(lambda m, c: m.history.truncate(after=c.said_under[0], **c.ids), talk, at_most_once=True),
    "history.messages (superseded)": _on(lambda m, c: m.history.messages(c.thread, superseded=True), talk),
    "history.delete": _on(lambda m, c: m.history.delete(list(c.said_under[::3]), **c.ids), talk, at_most_once=True),
    "history.delete (until)": _on(
        lambda m, c: m.history.delete(until=datetime.now(UTC), **c.ids), talk, at_most_once=True
    ),
    "history.clear": _on(lambda m, c: m.history.clear(c.thread), talk, at_most_once=True),
    "threads.delete": _on(lambda m, c: m.threads.delete(**c.ids), talk, at_most_once=True),
    "users.usage": _on(lambda m, c: m.users.usage(c.user), start_from_nothing),
    "users.list": _on(lambda m, c: m.users.list(), talk),
    "users.export": _on(lambda m, c: list(m.users.export(c.user))),
    "users.load": _on(lambda m, c: m.users.load(list(m.users.export(c.user)))),
    "users.merge": _on(lambda m, c: m.users.merge(c.user, into=c.beside("user"))),
    "users.delete": _on(lambda m, c: m.users.delete(c.user)),
}
ALONE = {name: operation for name, operation in OPERATIONS.items() if operation.prepare is not None}


@dataclass(frozen=True)
class StoreOperation:
    call: Callable[[RedisMemoryStore, tuple[str, ...], str, str], Any]
    expected: Callable[[Any, tuple[str, ...], str, str], bool] = lambda reply, _place, _first, _second: reply is None


def _keys(items: Sequence[SearchItem]) -> list[str]:
    return [item.key for item in items]


# The same for a store: called with a namespace and two keys.
STORE_OPERATIONS: dict[str, StoreOperation] = {
    "setup": StoreOperation(lambda s, *_: s.setup()),
    "put": StoreOperation(lambda s, p, a, b: s.put(p, a, {"text": "red fox", "tags": ["x", "y"], a: b}, ttl=10)),
    "put (without an index)": StoreOperation(lambda s, p, _, b: s.put(p, b, {"text": "blue sea"}, index=False)),
    "get": StoreOperation(lambda s, p, a, _: s.get(p, a), lambda item, p, a, _: (item.namespace, item.key) == (p, a)),
    "search": StoreOperation(
        lambda s, p, *_: s.search(p, query="red fox", filter={"text": {"$ne": ""}}), lambda found, *_: len(found) == 2
    ),
    "search (by a range)": StoreOperation(
        lambda s, p, *_: s.search(p, filter={"text": {"$gt": "a"}}), lambda found, *_: len(found) == 2
    ),
    "search (by a list)": StoreOperation(
        lambda s, p, *_: s.search(p[:1], filter={"tags": ["x", "y"]}), lambda found, _p, a, _: _keys(found) == [a]
    ),
    "list_namespaces": StoreOperation(
        lambda s, p, *_: s.list_namespaces(prefix=p[:1]), lambda found, p, *_: found == [p]
    ),
    "list_namespaces (by both ends)": StoreOperation(
        lambda s, p, *_: s.list_namespaces(prefix=p, suffix=p[-1:]), lambda found, p, *_: found == [p]
    ),
    "put (again)": StoreOperation(lambda s, p, a, _: s.put(p, a, {"text": "blue sea"})),
    "delete": StoreOperation(lambda s, p, _, b: s.delete(p, b)),
    "batch": StoreOperation(
        lambda s, p, a, b: s.batch([SearchOp(p), GetOp(p, a), GetOp(p, b)]),
        lambda replies, _p, a, _: (_keys(replies[0]), replies[1].key, replies[2]) == ([a], a, None),
    ),
}


def use(store: RedisMemoryStore, place: tuple[str, ...] = ("memories", "maya"), keys: Sequence[str] = "ab") -> None:
    """Do all that a store can."""
    for name, operation in STORE_OPERATIONS.items():
        if name != "setup":  # which needs the right to make an index
            reply = operation.call(store, place, *keys)
            assert operation.expected(reply, place, *keys), (name, reply)
