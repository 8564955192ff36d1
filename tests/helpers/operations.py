"""Every public operation once, in an order in which each finds what it needs: for tests that must leave none out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, RecallOptions, TitleOptions, WorkingMemoryOptions
from langchain_workingmem.options import Scope
from langchain_workingmem.store import RedisMemoryStore
from langchain_workingmem.tools import AWAY
from tests.helpers.embedded import wait_until
from tests.helpers.embeddings import WordEmbeddings

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who calls: a resource in a thread, through one of the faces."""

    memory: Memory
    runner: asyncio.Runner | None = None  # for async calls of tools, nodes and retrievers
    thread: str = "t"
    resource: str = "u"
    secret: str = "secret"  # which stands in all that this caller stores
    said_under: tuple[str, ...] = ("m0", "m1", "m2", "m3")  # ids of messages
    author: str | None = None

    @property
    def ids(self) -> dict[str, Any]:
        return {"thread_id": self.thread, "resource_id": self.resource}

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


def options(scope: Scope = "resource") -> dict[str, Any]:
    """Switch everything on."""
    return {
        "embeddings": WordEmbeddings(),
        "recall": RecallOptions(),
        "working_memory": WorkingMemoryOptions(template="", scope=scope, tools=("get", "update", "clear")),
        "title": TitleOptions(model=FakeListChatModel(responses=["A title"])),
    }


def _titled(c: Caller) -> None:
    place = c.beside("untitled")
    c.memory.history.append(c.said(), thread_id=place, resource_id=c.resource)
    wait_until(lambda: (thread := c.memory.threads.get(place)) and thread.title == "A title")


def _chat_history(c: Caller) -> Any:
    history = c.memory.chat_history(c.beside("chat"), c.resource)
    if c.runner is None:
        history.add_messages(c.said())
        seen = history.messages
        history.clear()
    else:
        c.runner.run(history.aadd_messages(c.said()))
        seen = c.runner.run(history.aget_messages())
        c.runner.run(history.aclear())
    return seen


def use(store: RedisMemoryStore, place: tuple[str, ...] = ("memories", "maya"), keys: Sequence[str] = "ab") -> None:
    """Do all that a store can."""
    first, second = keys
    store.put(place, first, {"text": "red fox", "tags": ["x", "y"], first: second}, ttl=10)
    store.put(place, second, {"text": "blue sea"}, index=False)
    item = store.get(place, first)
    assert item is not None
    assert (item.namespace, item.key) == (place, first)
    assert len(store.search(place, query="red fox", filter={"text": {"$ne": ""}})) == 2
    assert len(store.search(place, filter={"text": {"$gt": "a"}})) == 2
    assert [item.key for item in store.search(place[:1], filter={"tags": ["x", "y"]})] == [first]
    assert store.list_namespaces(prefix=place[:1]) == [place]
    assert store.list_namespaces(prefix=place, suffix=place[-1:]) == [place]
    store.put(place, first, {"text": "blue sea"})
    store.delete(place, second)
    assert [item.key for item in store.search(place)] == [first]


# By the name of the method, or of the face.
OPERATIONS: dict[str, Callable[[Caller], Any]] = {
    "setup": lambda c: c.memory.setup(),
    "threads.create": lambda c: c.memory.threads.create(
        **c.ids, title=c.secret, metadata={"kind": "pin", "pin": c.secret}, working_memory=f"knows {c.secret}"
    ),
    "history.append": lambda c: c.memory.history.append(c.said(), **c.ids),
    "save_turn": lambda c: c.memory.save_turn([*c.said(), HumanMessage("and more", id=c.said_under[2])], **c.ids),
    "history.update": lambda c: c.memory.history.update(
        [AIMessage(f"changed {c.secret}", id=c.said_under[1])], **c.ids
    ),
    "history.messages": lambda c: c.memory.history.messages(c.thread, last=9, roles=["human"], since=LONG_AGO),
    "history.page": lambda c: c.memory.history.page(c.thread, limit=1),
    "history.for_resource": lambda c: c.memory.history.for_resource(c.resource),
    "context": lambda c: c.memory.context("the pin", **c.ids),
    "recall.search": lambda c: c.memory.recall.search("the pin", resource_id=c.resource, thread_id=c.thread),
    "recall.reindex": lambda c: c.memory.recall.reindex(resource_id=c.resource, progress=False),
    "threads.get": lambda c: c.memory.threads.get(c.thread),
    "threads.list": lambda c: c.memory.threads.list(resource_id=c.resource, metadata={"kind": "pin"}),
    "threads.update": lambda c: c.memory.threads.update(c.thread, title=f"Keys {c.secret}", metadata={"kind": None}),
    "threads.clone": lambda c: c.memory.threads.clone(c.thread, new_thread_id=c.beside("copy")),
    "threads.source_of": lambda c: c.memory.threads.source_of(c.beside("copy")),
    "threads.lineage": lambda c: c.memory.threads.lineage(c.beside("copy")),
    "threads.clones_of": lambda c: c.memory.threads.clones_of(c.thread),
    "threads.transfer": lambda c: c.memory.threads.transfer(
        c.beside("copy"), resource_id=c.resource, to=c.beside("heir")
    ),
    "working_memory.update": lambda c: c.memory.working_memory.update(f"likes {c.secret}", **c.ids),
    "working_memory.get": lambda c: c.memory.working_memory.get(**c.ids),
    "working_memory.clear": lambda c: c.memory.working_memory.clear(**c.ids),
    "working_memory.revisions": lambda c: c.memory.working_memory.revisions(**c.ids),
    "working_memory.revert": lambda c: c.memory.working_memory.revert(1, **c.ids),
    "titles": _titled,
    "chat_history": _chat_history,
    "load_node": lambda c: c.invoke(c.memory.load_node(), {"messages": [HumanMessage("the pin", id="q")]}),
    "save_node": lambda c: c.invoke(c.memory.save_node(), {"messages": [HumanMessage("bye", id=c.said_under[3])]}),
    "as_retriever": lambda c: c.invoke(c.memory.as_retriever(), "the pin"),
    "update_working_memory": lambda c: c.tool("update_working_memory", memory=f"likes {c.secret} too"),
    "get_working_memory": lambda c: c.tool("get_working_memory"),
    "clear_working_memory": lambda c: c.tool("clear_working_memory"),
    "search_memory": lambda c: c.tool("search_memory", query="the pin"),
    "doctor": lambda c: c.memory.doctor(),
    "history.truncate": lambda c: (
        c.memory.history.truncate(after=c.said_under[0], **c.ids),
        c.memory.history.messages(**c.ids, superseded=True),
    ),
    "history.delete": lambda c: c.memory.history.delete([c.said_under[0]], **c.ids),
    "history.clear": lambda c: c.memory.history.clear(c.thread),
    "threads.delete": lambda c: c.memory.threads.delete(c.thread),
    "export_resource": lambda c: list(c.memory.export_resource(c.resource)),
    "import_resource": lambda c: c.memory.import_resource(list(c.memory.export_resource(c.resource))),
    "delete_resource": lambda c: c.memory.delete_resource(c.resource),
}
