"""What the tools do, for the user that the server names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import AIMessage, HumanMessage
from mcp import types

from langchain_workingmem._redis.state import ShownDocument
from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem._text.values import aware
from langchain_workingmem.errors import ArgumentError, ReadOnlyError, ThreadNotFoundError, ThreadOwnershipError
from langchain_workingmem.faces.tools import MAKERS
from langchain_workingmem.history.save import append
from langchain_workingmem.mcp import answers
from langchain_workingmem.mcp.answers import quoted
from langchain_workingmem.mcp.arguments import (
    MOST_CHARACTERS,
    MOST_TOKENS,
    ListThreads,
    Nothing,
    SaveMessages,
    SearchMemory,
    json_schema,
    with_more,
)
from langchain_workingmem.options import Ids
from langchain_workingmem.working_memory.document import TextFormat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from datetime import datetime

    from pydantic import BaseModel

    from langchain_workingmem.mcp.answers import Answer
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import WorkingMemoryState

LIST = "List the stored conversations with this user, the latest first."
SAVE = (
    "Save the new messages of a conversation, so that later conversations find them. Send each message once, or with an id. "
    "Returns the thread_id: pass it the next time."
)
OBJECT = (
    "working memory is a JSON object of a program, whose schema is not known here; it is shown, and nothing was changed"
)


class Tool(NamedTuple):
    """A tool that clients are offered."""

    name: str
    description: str
    arguments: type[BaseModel]
    result: type[Any]  # a `TypedDict`
    run: Callable[..., Awaitable[Answer]]  # takes the user, and the arguments as keywords
    writes: bool = False  # then it can also change or remove what is there
    again: bool = True  # the same call once more changes nothing more

    def offer(self) -> types.Tool:
        """Describe it for clients."""
        title = self.name.replace("_", " ").capitalize()
        hints = types.ToolAnnotations(
            title=title,
            readOnlyHint=not self.writes,
            destructiveHint=self.writes,
            idempotentHint=self.again,
            openWorldHint=False,
        )
        return types.Tool(
            name=self.name,
            title=title,
            description=self.description,
            inputSchema=json_schema(self.arguments),
            outputSchema=json_schema(self.result),
            annotations=hints,
        )


class Operations:
    """The tools over one memory."""

    def __init__(self, memory: Memory, *, read_only: bool) -> None:
        self._memory, self._core, self._part = memory, memory._core, memory.working_memory
        offered = {tool.name: tool for tool in self._offered()}
        self.tools = {name: tool for name, tool in offered.items() if not (read_only and tool.writes)}
        self.refused = offered.keys() - self.tools.keys()  # because this server only reads

    def _offered(self) -> Iterator[Tool]:
        state = self._core.state
        if (options := state.working_memory) is not None:
            thread = options.scope == "thread"
            no_arguments = with_more(Nothing, thread=thread)
            description = MAKERS["get_working_memory"](self._core)[0]
            yield Tool("get_working_memory", description, no_arguments, answers.Document, self.get)
            if not options.read_only:
                description, schema, _ = MAKERS["update_working_memory"](self._core)
                schema = with_more(schema, thread=thread, revision=options.format.default_mode == "replace")
                changed = answers.Changed
                yield Tool("update_working_memory", description, schema, changed, self.update, writes=True, again=False)
                description = MAKERS["clear_working_memory"](self._core)[0]
                yield Tool("clear_working_memory", description, no_arguments, changed, self.clear, writes=True)
        if state.recall is not None:
            schema = with_more(SearchMemory, thread=state.recall.scope == "thread")
            description = MAKERS["search_memory"](self._core)[0]
            yield Tool("search_memory", description, schema, answers.Found, self.search)
        yield Tool("list_threads", LIST, ListThreads, answers.Threads, self.list_threads)
        yield Tool("save_messages", SAVE, SaveMessages, answers.Saved, self.save, writes=True, again=False)

    async def _check_thread(self, user: str, thread_id: str | None) -> None:
        """Refuse a thread that does not exist; one of somebody else is as one that does not exist."""
        if thread_id is not None and await self._memory.threads.aget(thread_id, user_id=user) is None:
            raise ThreadNotFoundError(thread_id)

    # ------------------------------------------------------------------ threads

    async def search(
        self,
        user: str,
        query: str,
        since: datetime | None = None,
        until: datetime | None = None,
        thread_id: str | None = None,
        limit: int | None = None,
    ) -> Answer:
        """Search by meaning."""
        await self._check_thread(user, thread_id)
        zone = self._core.state.zone(thread_id, user)
        filters: Any = {"since": aware(since, zone), "until": aware(until, zone, last=True)}
        filters |= {"top_k": limit or self._core.state.recalling.top_k, "max_tokens": MOST_TOKENS}
        result = await self._memory.recall.asearch(query, thread_id=thread_id, user_id=user, **filters)
        return answers.of_hits(result, zone)

    async def list_threads(self, user: str, limit: int = 20, cursor: str | None = None) -> Answer:
        """List threads."""
        page = await self._memory.threads.alist(user_id=user, limit=limit, cursor=cursor)
        return answers.of_threads(page, self._core.state.zone(None, user))

    async def save(
        self, user: str, messages: list[Any], thread_id: str | None = None, title: str | None = None
    ) -> Answer:
        """Append messages. A turn would compare them with the thread, and could supersede what a client does not resend."""
        size = sum(len(message.content) for message in messages)
        ids = [message.id for message in messages if message.id is not None]

        def refuse(problem: str, remedy: str, *, when: bool) -> None:
            if when:
                raise ArgumentError(f"{problem}, so nothing was saved", remedy=remedy)

        problem = f"{size:,} characters of at most {MOST_CHARACTERS:,}"
        refuse(problem, "save them in several calls", when=size > MOST_CHARACTERS)
        refuse("two of the messages have the same id", "give each its own", when=len({*ids}) < len(ids))
        refuse("a message is empty", "leave it out", when=any(not message.content.strip() for message in messages))
        refuse("the title is no valid Unicode", "send another", when=title is not None and not is_utf8(title))
        kinds = {"user": HumanMessage, "assistant": AIMessage}
        converted = [kinds[message.role](message.content, name=message.name, id=message.id) for message in messages]
        thread_id = self._core.new_id() if thread_id is None else thread_id
        try:
            # without vectors is better than not at all, and recall.reindex adds them
            stored = await self._core.arun(append(self._core, converted, thread_id, user, on_error="log"))
        except ThreadOwnershipError as error:
            raise ArgumentError(
                f"thread {quoted(thread_id)} cannot be written to, and nothing was saved",
                remedy="pass another thread_id, or none for a new thread",
            ) from error
        if title is not None:
            await self._memory.threads.aupdate(thread_id, user_id=user, title=title)
        return answers.of_saved(thread_id, [str(message.id) for message in stored])

    # ---------------------------------------------------------- working memory

    async def _read(self, user: str, thread_id: str | None) -> WorkingMemoryState:
        """Read working memory; with the scope "thread", of a thread that exists."""
        await self._check_thread(user, thread_id)
        return await self._part.aget(thread_id=thread_id, user_id=user)

    async def get(self, user: str, thread_id: str | None = None) -> Answer:
        """Read working memory."""
        return answers.of_working_memory(await self._read(user, thread_id), self._part.template)

    async def update(
        self, user: str, thread_id: str | None = None, revision: int | None = None, **change: Any
    ) -> Answer:
        """Change working memory as the tool of agents does. A whole text replaces only what the client has read."""
        state = await self._writable(user, thread_id)
        is_whole = self._core.state.remembering.format.default_mode == "replace" and change.get("memory") is not None
        if revision != state.revision and (revision is not None or (is_whole and not state.is_empty)):
            problem = f"working memory is at revision {state.revision}, so nothing was changed"
            remedy = "read it with get_working_memory, and pass that revision"
            raise ArgumentError(problem, remedy=remedy if revision is not None else f"{remedy}, or use `edits`")
        return await self._change("update_working_memory", user, thread_id, ShownDocument(state.text), **change)

    async def clear(self, user: str, thread_id: str | None = None) -> Answer:
        """Empty working memory."""
        await self._writable(user, thread_id)
        return await self._change("clear_working_memory", user, thread_id, None)

    async def _change(self, tool: str, user: str, thread_id: str | None, document: Any, **change: Any) -> Answer:
        _, _, make = MAKERS[tool](self._core)
        report = await self._core.arun(make(Ids(thread_id, user), document, **change))
        return answers.of_change(report, await self._part.aget(thread_id=thread_id, user_id=user))

    async def _writable(self, user: str, thread_id: str | None) -> WorkingMemoryState:
        state = await self._read(user, thread_id)
        form = self._core.state.remembering.format
        if isinstance(form, TextFormat) and form.is_foreign(state.text):
            raise ReadOnlyError(OBJECT, remedy="tell the user to connect the server of that program")
        return state
