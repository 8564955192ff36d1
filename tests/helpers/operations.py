"""Every public operation once: for tests that must leave none out.

The list runs from top to bottom, and each operation finds what it needs. By itself an operation runs after its `prepare`.
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
    return {
        "embeddings": WordEmbeddings(),
        "recall": RecallOptions(),
        "working_memory": WorkingMemoryOptions(
            template="", scope=scope, tools=("get", "update", "clear"), keeper=Noting(), background=False
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


def start_from_nothing(c: Caller) -> None:
    """Prepare nothing."""


def talk(c: Caller) -> None:
    c.memory.threads.create(**c.ids, title=c.secret, metadata={"kind": "pin"})
    c.memory.history.append(c.said(), **c.ids)


def note(c: Caller) -> None:
    c.memory.working_memory.update("likes tea", user_id=c.user)
    c.memory.working_memory.update("rides a bicycle", user_id=c.user)


def talk_and_note(c: Caller) -> None:
    talk(c)
    note(c)


def talk_on(c: Caller) -> None:
    talk(c)
    c.memory.history.append([HumanMessage("and now?", id=c.said_under[2])], **c.ids)


def talk_and_observe(c: Caller) -> None:
    talk_on(c)
    c.memory.observations.observe(c.thread)


def first_line(c: Caller) -> str:
    found: str = c.memory.observations.get(**c.ids).observations[0].id
    return found


def talk_and_keep(c: Caller) -> None:
    talk(c)
    c.memory.working_memory.keep(c.thread, user_id=c.user)


def kept_path(c: Caller) -> str:
    """Return a path that a keeper has set; the first of all, where it has not."""
    paths = sorted(c.memory.working_memory.get(**c.ids).timeline or ())
    return next((one for one in paths if "my pin" in one), paths[0])


def talk_and_clone(c: Caller) -> None:
    talk(c)
    c.memory.threads.clone(c.thread, new_thread_id=c.beside("copy"))


def no_files(c: Caller) -> None:
    with suppress(FileMissingError):
        c.memory.files.delete("/", purge=True, **c.owner)


def file(c: Caller) -> None:
    no_files(c)
    c.memory.files.write("/notes/a.md", c.text, **c.owner)


def file_twice(c: Caller) -> None:
    file(c)
    c.memory.files.edit("/notes/a.md", "one", "ONE", **c.owner)


@dataclass(frozen=True)
class Operation:
    call: Callable[[Caller], Any]
    prepare: Callable[[Caller], None] | None = (
        None  # None: never called by itself, for it is more than one step, or a face
    )
    at_most_once: bool = False  # a lost reply is an error, because nothing may happen twice
    bare: bool = False  # prepared without vectors


# By the name of the method, or of the face; what follows a method's name in brackets tells a second call of it.
OPERATIONS: dict[str, Operation] = {
    "setup": Operation(lambda c: c.memory.setup()),
    "threads.create": Operation(
        lambda c: c.memory.threads.create(**c.ids, title=c.secret, metadata={"kind": "pin"}),
        start_from_nothing,
        at_most_once=True,
    ),
    "threads.create (with working memory)": Operation(
        lambda c: c.memory.threads.create(
            user_id=c.user, thread_id=c.beside("seeded"), title=c.secret, working_memory=f"knows {c.secret}"
        ),
    ),
    "history.append": Operation(lambda c: c.memory.history.append(c.said(), **c.ids), start_from_nothing),
    "save_turn": Operation(
        lambda c: c.memory.save_turn([*c.said(), HumanMessage("and more", id=c.said_under[2])], **c.ids), talk
    ),
    "history.update": Operation(
        lambda c: c.memory.history.update([AIMessage(f"changed {c.secret}", id=c.said_under[1])], **c.ids), talk
    ),
    "history.messages": Operation(
        lambda c: c.memory.history.messages(c.thread, last=9, roles=["human"], since=datetime(2000, 1, 1, tzinfo=UTC)),
        talk,
    ),
    "history.page": Operation(lambda c: c.memory.history.page(c.thread, limit=1), talk),
    "history.for_user": Operation(lambda c: c.memory.history.for_user(c.user), talk),
    "context": Operation(
        lambda c: c.memory.context([HumanMessage("the pin", id=c.said_under[3])], **c.ids), talk_and_note
    ),
    "recall.search": Operation(lambda c: c.memory.recall.search("the pin", user_id=c.user, thread_id=c.thread), talk),
    "recall.reindex": Operation(lambda c: c.memory.recall.reindex(user_id=c.user, progress=False), talk, bare=True),
    "threads.get": Operation(lambda c: c.memory.threads.get(c.thread), talk),
    "threads.list": Operation(lambda c: c.memory.threads.list(user_id=c.user, metadata={"kind": "pin"}), talk),
    "threads.update": Operation(
        lambda c: c.memory.threads.update(c.thread, title=f"Keys {c.secret}", metadata={"kind": None, "tags": [1]}),
        talk,
    ),
    "threads.clone": Operation(
        lambda c: c.memory.threads.clone(c.thread, new_thread_id=c.beside("copy"), title=c.secret), talk
    ),
    "threads.lineage": Operation(lambda c: c.memory.threads.lineage(c.beside("copy")), talk_and_clone),
    "threads.transfer": Operation(
        lambda c: c.memory.threads.transfer(c.beside("copy"), user_id=c.user, to=c.beside("heir")),
        talk_and_clone,
        at_most_once=True,
    ),
    "threads.backfill": Operation(_backfill, start_from_nothing),
    "working_memory.update": Operation(lambda c: c.memory.working_memory.update(f"likes {c.secret}", **c.ids), note),
    "working_memory.get": Operation(lambda c: c.memory.working_memory.get(**c.ids), note),
    "working_memory.clear": Operation(lambda c: c.memory.working_memory.clear(**c.ids), note),
    "working_memory.revisions": Operation(lambda c: c.memory.working_memory.revisions(**c.ids), note),
    "working_memory.revert": Operation(lambda c: c.memory.working_memory.revert(1, **c.ids), note),
    "working_memory.keep": Operation(lambda c: c.memory.working_memory.keep(c.thread, user_id=c.user), talk),
    "working_memory.undo": Operation(
        lambda c: c.memory.working_memory.undo(kept_path(c), **c.ids),
        talk_and_keep,
    ),
    "observations.observe": Operation(lambda c: c.memory.observations.observe(c.thread), talk_on),
    "observations.get": Operation(lambda c: c.memory.observations.get(**c.ids), talk_and_observe),
    "observations.sources": Operation(
        lambda c: c.memory.observations.sources(first_line(c), **c.ids), talk_and_observe
    ),
    "observations.delete": Operation(lambda c: c.memory.observations.delete(first_line(c), **c.ids), talk_and_observe),
    "observations.clear": Operation(lambda c: c.memory.observations.clear(**c.ids), talk_and_observe),
    "files.write": Operation(lambda c: c.memory.files.write("/notes/a.md", c.text, **c.owner), no_files),
    "files.edit": Operation(lambda c: c.memory.files.edit("/notes/a.md", "two", f"2 {c.secret}", **c.owner), file),
    "files.write (from a base)": Operation(
        lambda c: c.memory.files.write("/notes/a.md", f"{c.text}end\n", base_revision=2, by="ann", **c.owner),
        file_twice,
    ),
    "files.insert": Operation(lambda c: c.memory.files.insert("/notes/a.md", 1, c.secret, **c.owner), file),
    "files.read": Operation(lambda c: c.memory.files.read("/notes/a.md", **c.owner), file),
    "files.list": Operation(lambda c: c.memory.files.list("/notes", **c.owner), file),
    "files.glob": Operation(lambda c: c.memory.files.glob("*.md", **c.owner), file),
    "files.grep": Operation(lambda c: c.memory.files.grep("three", path="/notes", **c.owner), file),
    "files.history": Operation(lambda c: c.memory.files.history("/notes/a.md", **c.owner), file_twice),
    "files.revert": Operation(lambda c: c.memory.files.revert("/notes/a.md", 1, **c.owner), file_twice),
    "files.rename": Operation(lambda c: c.memory.files.rename("/notes", f"/{c.secret}", **c.owner), file),
    "files.usage": Operation(lambda c: c.memory.files.usage(**c.owner), file),
    "files.delete (and forget)": Operation(lambda c: c.memory.files.delete("/", purge=True, **c.owner), file),
    "files.write (again)": Operation(lambda c: c.memory.files.write("/notes/a.md", c.text, **c.owner), no_files),
    "files.delete": Operation(lambda c: c.memory.files.delete("/", **c.owner), file),
    "files.write (to keep)": Operation(lambda c: c.memory.files.write("/kept.md", c.text, **c.owner), no_files),
    "titles": Operation(_titled),
    "chat_history": Operation(_chat_history),
    "load_node": Operation(lambda c: c.invoke(c.memory.load_node(), {"messages": [HumanMessage("the pin", id="q")]})),
    "save_node": Operation(
        lambda c: c.invoke(c.memory.save_node(), {"messages": [HumanMessage("bye", id=c.said_under[3])]})
    ),
    "as_retriever": Operation(lambda c: c.invoke(c.memory.as_retriever(), "the pin")),
    "update_working_memory": Operation(lambda c: c.tool("update_working_memory", memory=f"likes {c.secret} too")),
    "get_working_memory": Operation(lambda c: c.tool("get_working_memory")),
    "clear_working_memory": Operation(lambda c: c.tool("clear_working_memory")),
    "search_memory": Operation(lambda c: c.tool("search_memory", query="the pin")),
    "settled": Operation(lambda c: c.memory.settled()),
    "doctor": Operation(lambda c: c.memory.doctor()),
    "history.truncate": Operation(
        lambda c: c.memory.history.truncate(after=c.said_under[0], **c.ids), talk, at_most_once=True
    ),
    "history.messages (superseded)": Operation(lambda c: c.memory.history.messages(c.thread, superseded=True), talk),
    "history.delete": Operation(
        lambda c: c.memory.history.delete(list(c.said_under[::3]), **c.ids), talk, at_most_once=True
    ),
    "history.delete (until)": Operation(
        lambda c: c.memory.history.delete(until=datetime.now(UTC), **c.ids), talk, at_most_once=True
    ),
    "history.clear": Operation(lambda c: c.memory.history.clear(c.thread), talk, at_most_once=True),
    "threads.delete": Operation(lambda c: c.memory.threads.delete(c.thread), talk, at_most_once=True),
    "users.usage": Operation(lambda c: c.memory.users.usage(c.user), start_from_nothing),
    "users.list": Operation(lambda c: c.memory.users.list(), talk),
    "users.export": Operation(lambda c: list(c.memory.users.export(c.user))),
    "users.load": Operation(lambda c: c.memory.users.load(list(c.memory.users.export(c.user)))),
    "users.merge": Operation(lambda c: c.memory.users.merge(c.user, into=c.beside("user"))),
    "users.delete": Operation(lambda c: c.memory.users.delete(c.user)),
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
    "setup": StoreOperation(lambda store, *_: store.setup()),
    "put": StoreOperation(
        lambda store, place, first, second: store.put(
            place, first, {"text": "red fox", "tags": ["x", "y"], first: second}, ttl=10
        )
    ),
    "put (without an index)": StoreOperation(
        lambda store, place, _, second: store.put(place, second, {"text": "blue sea"}, index=False)
    ),
    "get": StoreOperation(
        lambda store, place, first, _: store.get(place, first),
        lambda item, place, first, _: (item.namespace, item.key) == (place, first),
    ),
    "search": StoreOperation(
        lambda store, place, *_: store.search(place, query="red fox", filter={"text": {"$ne": ""}}),
        lambda found, *_: len(found) == 2,
    ),
    "search (by a range)": StoreOperation(
        lambda store, place, *_: store.search(place, filter={"text": {"$gt": "a"}}), lambda found, *_: len(found) == 2
    ),
    "search (by a list)": StoreOperation(
        lambda store, place, *_: store.search(place[:1], filter={"tags": ["x", "y"]}),
        lambda found, _place, first, _: _keys(found) == [first],
    ),
    "list_namespaces": StoreOperation(
        lambda store, place, *_: store.list_namespaces(prefix=place[:1]), lambda found, place, *_: found == [place]
    ),
    "list_namespaces (by both ends)": StoreOperation(
        lambda store, place, *_: store.list_namespaces(prefix=place, suffix=place[-1:]),
        lambda found, place, *_: found == [place],
    ),
    "put (again)": StoreOperation(lambda store, place, first, _: store.put(place, first, {"text": "blue sea"})),
    "delete": StoreOperation(lambda store, place, _, second: store.delete(place, second)),
    "batch": StoreOperation(
        lambda store, place, first, second: store.batch([SearchOp(place), GetOp(place, first), GetOp(place, second)]),
        lambda replies, _place, first, _: (_keys(replies[0]), replies[1].key, replies[2]) == ([first], first, None),
    ),
}


def use(store: RedisMemoryStore, place: tuple[str, ...] = ("memories", "maya"), keys: Sequence[str] = "ab") -> None:
    """Do all that a store can."""
    for name, operation in STORE_OPERATIONS.items():
        if name != "setup":  # which needs the right to make an index
            reply = operation.call(store, place, *keys)
            assert operation.expected(reply, place, *keys), (name, reply)
