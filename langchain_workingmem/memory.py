"""`Memory`: message history, semantic recall, working memory and one turn of an agent, over one Redis."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, get_args
from uuid import uuid4

from langchain_core.messages import BaseMessage, HumanMessage

from langchain_workingmem.errors import EmbeddingError, EmbeddingSizeError, OptionError
from langchain_workingmem.faces import Faces
from langchain_workingmem.io.breaker import Breaker
from langchain_workingmem.options import (
    CONNECT_TIMEOUT,
    TIMEOUT,
    HistoryOptions,
    OnError,
    RecallOptions,
    TitleOptions,
    WorkingMemoryOptions,
    check_ttl,
    check_type,
    one_of,
)
from langchain_workingmem.parts.base import Core
from langchain_workingmem.parts.entered import Entered
from langchain_workingmem.parts.history import History
from langchain_workingmem.parts.recall import Recall
from langchain_workingmem.parts.resources import Resources
from langchain_workingmem.parts.threads import Threads
from langchain_workingmem.parts.working_memory import WorkingMemory
from langchain_workingmem.plans import turn
from langchain_workingmem.plans.codec import as_messages
from langchain_workingmem.plans.effects import traced
from langchain_workingmem.plans.keys import Keys, check_id
from langchain_workingmem.plans.recall import Query
from langchain_workingmem.plans.space import Space

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from datetime import timedelta
    from os import PathLike

    from langchain_core.embeddings import Embeddings
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import MessageLikeRepresentation

    from langchain_workingmem.io.clients import AsyncClient, SyncClient
    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.options import Scope
    from langchain_workingmem.plans.branch import Kind
    from langchain_workingmem.plans.effects import Plan

_log = logging.getLogger("langchain_workingmem")


class Memory(Faces, Resources, Entered):
    """The memory of agents on one Redis.

    Parts: `threads`, `history`, `recall`, `working_memory`. Every method that does I/O has an async twin with the prefix `a`. One
    object serves sync and async callers, threads and event loops. Nothing is connected to before the first use.

    Args:
        redis_url: redis://, rediss://, unix:// or redis+sentinel://; without it the environment's REDIS_URL, else
            redis://localhost:6379.
        client: A redis-py client (also of a cluster) to use for sync calls instead; never closed here.
        async_client: The same for async calls, bound to the event loop that it was made for.
        embeddings: A LangChain embedding model, or its name: "openai:text-embedding-3-small", "local", or whatever
            `init_embeddings` of langchain knows. It turns recall on.
        history: What a turn shows of the thread.
        recall: Options of semantic recall, which needs `embeddings`; None: on with its defaults if there are embeddings;
            False: off, and nothing is embedded.
        working_memory: Options of working memory; None: off.
        title: Titles for threads that have none, made by a model in the background; None: off.
        key_prefix: In front of every key; memories with different prefixes do not see each other.
        ttl: How long after the last write a thread expires, with all that is its own; None: threads stay.
        create_index: False: attach only, as a Redis user that may not create indexes.
        on_error: When the embedding model fails: "raise", or "log" and go on without vectors or recall. With "log" nodes and
            tools go on when Redis is away, too; a circuit breaker keeps them from waiting for it (docs/reliability.md).
        timeout: How long to wait for each reply, and for a connection while all are in use; `socket_timeout` and `timeout` in
            the URL win. What failed is repeated where that is
            safe, so a call may wait twice (docs/reliability.md).
        connect_timeout: How long to wait for a connection, at most `timeout`; `socket_connect_timeout` in the URL wins.
    """

    def __init__(
        self,
        redis_url: str | None = None,
        *,
        client: SyncClient | None = None,
        async_client: AsyncClient | None = None,
        embeddings: Embeddings | str | None = None,
        history: HistoryOptions | None = None,
        recall: RecallOptions | Literal[False] | None = None,
        working_memory: WorkingMemoryOptions | None = None,
        title: TitleOptions | None = None,
        key_prefix: str = "wm",
        ttl: timedelta | None = None,
        create_index: bool = True,
        on_error: OnError = "raise",
        timeout: timedelta = TIMEOUT,
        connect_timeout: timedelta = CONNECT_TIMEOUT,
    ) -> None:
        # redis-py and numpy: who only imports `Memory` need not wait for them
        from langchain_workingmem.io.connecting import runners
        from langchain_workingmem.io.embedder import Embedder, name_of

        one_of(on_error, get_args(OnError), "on_error")
        if recall is None and embeddings is not None:
            recall = RecallOptions()
        recalling = None if recall is False else recall
        for given, kind, name in (
            (history, HistoryOptions, "history"),
            (recalling, RecallOptions, "recall"),
            (working_memory, WorkingMemoryOptions, "working_memory"),
            (title, TitleOptions, "title"),
        ):
            if given is not None:
                check_type(given, kind, name)
        if recalling is not None and embeddings is None:
            raise OptionError(
                "recall needs an embedding model", remedy="pass embeddings=..., an object or a name such as 'local'"
            )
        model = _model(embeddings) if recalling is not None else None
        asked = recalling or RecallOptions()
        embedder = Embedder(model, asked.embedding_cache_size, asked.embedding_timeout)
        self._runner, self._async_runner = runners(redis_url, client, async_client, timeout, connect_timeout, embedder)
        self._server: Any = None
        self._on_error: OnError = on_error
        self.history_options = history or HistoryOptions()
        self._space = Space(
            keys=Keys(key_prefix),
            recall=recalling,
            working_memory=working_memory,
            title=replace(title, model=chat_model(title.model)) if title and title.model is not None else title,
            model=name_of(model) if model else "",
            ttl_ms=check_ttl(ttl),
            create=create_index,
        )
        self.core = core = Core(
            space=self._space,
            run=self._runner.run,
            arun=self._async_runner.run,
            stream=self._runner.stream,
            astream=self._async_runner.stream,
            new_id=lambda: str(uuid4()),
            on_error=on_error,
            breaker=Breaker(),
        )
        self._runner.breaker = self._async_runner.breaker = core.breaker
        self.threads = Threads(core)
        self.history = History(core)
        self.recall = Recall(core)
        self.working_memory = WorkingMemory(core)

    @classmethod
    def embedded(
        cls,
        path: str | PathLike[str] | None = None,
        *,
        embeddings: Embeddings | str | None = None,
        history: HistoryOptions | None = None,
        recall: RecallOptions | Literal[False] | None = None,
        working_memory: WorkingMemoryOptions | None = None,
        title: TitleOptions | None = None,
        key_prefix: str = "wm",
        ttl: timedelta | None = None,
        create_index: bool = True,
        on_error: OnError = "raise",
        timeout: timedelta = TIMEOUT,
        connect_timeout: timedelta = CONNECT_TIMEOUT,
    ) -> Self:
        """Start a private Redis and return a memory on it; needs the extra `embedded`, and 40 to 150 ms.

        `path` is a directory that keeps the data; None is a temporary one, gone with its last user. Several processes
        may open the same path and share one server, which lives as long as any of them, or until `close`. One that
        died is started again, with its data, by whoever misses it first.
        """
        from langchain_workingmem.embedded import EmbeddedRedis

        server = EmbeddedRedis(path)
        server.start()
        try:
            memory = cls(
                server.url,
                embeddings=embeddings,
                history=history,
                recall=recall,
                working_memory=working_memory,
                title=title,
                key_prefix=key_prefix,
                ttl=ttl,
                create_index=create_index,
                on_error=on_error,
                timeout=timeout,
                connect_timeout=connect_timeout,
            )
        except BaseException:
            server.close()
            raise
        memory._server = server
        memory._runner.revive = memory._async_runner.revive = server.start
        return memory

    # ------------------------------------------------------------------ one turn

    def context(
        self,
        messages: Iterable[MessageLikeRepresentation] | str,
        *,
        thread_id: str,
        resource_id: str,
        scope: Scope | None = None,
        top_k: int | None = None,
        message_range: int | tuple[int, int] | None = None,
        threshold: float | None = None,
        max_tokens: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        exclude_message_ids: Collection[str] = (),
        read_only: bool = False,
        recall: Literal[False] | None = None,
        last_messages: int | None = None,
    ) -> MemoryContext:
        """Assemble what a model is shown at this turn; nothing is written.

        `messages` are the new ones, all of the conversation, or a str as the user's message; those without an id get one.
        `.messages` holds the history and them, on the branch that they say, such that every provider accepts it, but that
        the first may be an answer, which Bedrock and Gemini refuse: middleware and load node begin with the user. The last
        message of the user is what recall looks for. In front of its words stand, in a copy that is never saved, what is
        recalled, dated, labelled, escaped, and working memory, with how to update it unless `read_only`; with
        placement="system", or without such a message, they are blocks in `.system` for the end of your system prompt.
        Two round trips, one without recall; a third, and a second call of the embedding model, when a question is the
        first to name one of several authors. `recall=False` recalls nothing, `last_messages` counts instead of that of
        `HistoryOptions`, 0: no history. The other arguments are those of `recall.search`; recall is bounded by `top_k` and
        `max_tokens` together.
        """
        new, query = self._ask(
            messages,
            thread_id=thread_id,
            resource_id=resource_id,
            scope=scope,
            top_k=top_k,
            message_range=message_range,
            threshold=threshold,
            max_tokens=max_tokens,
            metadata=metadata,
            exclude_message_ids=exclude_message_ids,
            recall=recall,
        )
        plan = self._context(new, thread_id, resource_id, query, last_messages, read_only=read_only)
        return self._runner.run(plan)

    async def acontext(
        self,
        messages: Iterable[MessageLikeRepresentation] | str,
        *,
        thread_id: str,
        resource_id: str,
        scope: Scope | None = None,
        top_k: int | None = None,
        message_range: int | tuple[int, int] | None = None,
        threshold: float | None = None,
        max_tokens: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        exclude_message_ids: Collection[str] = (),
        read_only: bool = False,
        recall: Literal[False] | None = None,
        last_messages: int | None = None,
    ) -> MemoryContext:
        """Async twin of `context`."""
        new, query = self._ask(
            messages,
            thread_id=thread_id,
            resource_id=resource_id,
            scope=scope,
            top_k=top_k,
            message_range=message_range,
            threshold=threshold,
            max_tokens=max_tokens,
            metadata=metadata,
            exclude_message_ids=exclude_message_ids,
            recall=recall,
        )
        plan = self._context(new, thread_id, resource_id, query, last_messages, read_only=read_only)
        return await self._async_runner.run(plan)

    def _ask(
        self,
        messages: Iterable[MessageLikeRepresentation] | str,
        *,
        recall: Literal[False] | None = None,
        **arguments: Any,
    ) -> tuple[list[BaseMessage], Query | None]:
        check_id(arguments["resource_id"], "resource_id")
        new: list[BaseMessage] = [HumanMessage(messages)] if isinstance(messages, str) else as_messages(messages)
        one_of(recall, (False, None), "recall")
        options = self._space.recall
        if options is None or recall is not None:
            nothing: tuple[object, ...] = (None, (), [], {}, set(), "")  # filters without content ask for nothing
            ids = {"thread_id", "resource_id"}
            if asked := {name for name, value in arguments.items() if value not in nothing} - ids:
                self._space.recalling  # noqa: B018 - raises: somebody says what recall shall do, and it is off
                raise OptionError(f"recall=False and {', '.join(sorted(asked))}", remedy="leave one of them out")
            return new, None
        question = turn.question(new)
        return new, Query.of_turn(options, str(question.text) if question else "", **arguments)

    def _context(
        self,
        new: list[BaseMessage],
        thread_id: str,
        resource_id: str,
        query: Query | None,
        last_messages: int | None,
        *,
        read_only: bool,
    ) -> Plan[MemoryContext]:
        numbered = [message for message in new if message.id is None]
        for message in numbered:
            message.id = self.core.new_id()
        found = yield from self._gather(new, thread_id, resource_id, query, last_messages)
        found = found.renamed({message.id or "" for message in numbered})
        for message in numbered:
            message.id = found.branch.aliases.get(message.id or "", message.id)
        if not read_only:
            turn.note_branch(self._space, thread_id, new, found.branch)
        return self.assembled(found, new, read_only=read_only)

    def gathering(
        self,
        new: Sequence[BaseMessage],
        thread_id: str,
        resource_id: str,
        on_error: OnError | None = None,
        *,
        kind: Kind = "list",
        recall: Literal[False] | Mapping[str, Any] | None = None,
        last_messages: int | None = None,
    ) -> Plan[turn.Gathered]:
        """Plan to read what the store knows for a turn; for faces that assemble later, or more than once."""
        told = recall if isinstance(recall, Mapping) else {"recall": recall}
        _, query = self._ask(new, thread_id=thread_id, resource_id=resource_id, **told)
        return self._gather(new, thread_id, resource_id, query, last_messages, on_error, kind)

    def assembled(
        self,
        found: turn.Gathered,
        new: Sequence[BaseMessage],
        *,
        read_only: bool,
        for_model: bool = False,
        tools: Sequence[str] | None = None,
        name: str | None = None,
    ) -> MemoryContext:
        """Put together what `gathering` found and the messages at hand; `tools` are the names of those that the model has."""
        options = self.history_options
        return turn.assemble(
            self._space, found, new, options, read_only=read_only, for_model=for_model, tools=tools, name=name
        )

    def _gather(
        self,
        new: Sequence[BaseMessage],
        thread_id: str,
        resource_id: str,
        query: Query | None,
        last_messages: int | None,
        on_error: OnError | None = None,
        kind: Kind = "list",
    ) -> Plan[turn.Gathered]:
        seen = {"messages": list(new), "thread_id": thread_id, "resource_id": resource_id}
        history = self.history_options
        if last_messages is not None:  # of this call, and exactly that many
            history = replace(history, last_messages=last_messages, step=1)
        gather = partial(turn.gather, self._space, new, thread_id, resource_id, history, kind=kind)
        finding = self._found(gather, query, on_error or self._on_error)
        return traced("chain", "memory_context", seen, finding, _as_output)

    def _found(
        self, plan: Callable[..., Plan[turn.Gathered]], query: Query | None, on_error: OnError
    ) -> Plan[turn.Gathered]:
        try:
            return (yield from plan(query=query))
        except (EmbeddingError, EmbeddingSizeError, OptionError) as error:
            if on_error == "raise":
                raise
            _log.warning("%s; this turn goes without recall", error)
        return (yield from plan(query=None))

    def save_turn(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, resource_id: str
    ) -> list[BaseMessage]:
        """Save the messages of a turn, and return those that are stored. One round trip, atomic, safe to repeat.

        What is said of `history.append` holds here too; beyond it, the list is the conversation. Pass the turn, or all of the
        conversation: messages without ids that the thread has already are recognised by what they say, blanks at both ends
        ignored, and stored once. What contradicts the list, an answer that was regenerated or what followed a question that was
        edited, is superseded: it stays stored, and nothing shows it but `history.messages(superseded=True)`. So is what the
        list that `context` was asked with, in this process, has left behind.
        """
        check_id(resource_id, "resource_id")
        return self._runner.run(self.core.saving_turn(messages, thread_id, resource_id))

    async def asave_turn(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, resource_id: str
    ) -> list[BaseMessage]:
        """Async twin of `save_turn`."""
        check_id(resource_id, "resource_id")
        return await self._async_runner.run(self.core.saving_turn(messages, thread_id, resource_id))

    # ------------------------------------------------------------------ life

    def setup(self) -> None:
        """Create the indexes now rather than at first use. Idempotent; one embedding the very first time."""
        self._runner.run(self._setup())

    async def asetup(self) -> None:
        """Async twin of `setup`."""
        await self._async_runner.run(self._setup())

    def _setup(self) -> Plan[None]:
        try:
            yield from self._space.setup()
        except EmbeddingError as error:
            if self._on_error == "raise":
                raise
            _log.warning("%s; the index of vectors is made when the model works", error)

    def close(self) -> None:
        """Close what was opened here: the sync connections, and the embedded server unless others use it."""
        self._runner.close()
        if self._server is not None:
            self._runner.revive = self._async_runner.revive = None
            self._server.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop, and all that `close` does."""
        await self._async_runner.aclose()
        self.close()

    def __repr__(self) -> str:
        on = {"recall": self._space.recall, "working memory": self._space.working_memory}
        parts = ", ".join(["history", *(name for name, options in on.items() if options)])
        return f"<Memory {self._space.keys.prefix!r}: {parts}>"


def _as_output(found: turn.Gathered) -> dict[str, Any]:
    return {
        "history": [row.message for row in found.stored],
        "recalled": found.recalled.messages,
        "working_memory": found.working_memory.text if found.working_memory else None,
    }


def _model(embeddings: Embeddings | str | None) -> Embeddings | None:
    if not isinstance(embeddings, str):
        if embeddings is not None and not hasattr(embeddings, "embed_documents"):
            raise OptionError(
                f"embeddings is of type {type(embeddings).__name__}",
                remedy="pass an embedding model, or a name such as 'local'",
            )
        return embeddings
    from langchain_workingmem.embeddings import embeddings_by_name

    return embeddings_by_name(embeddings)


def chat_model(model: BaseChatModel | str) -> BaseChatModel:
    """Make a chat model of a name; one that is passed stays."""
    if not isinstance(model, str):
        return model
    from langchain_workingmem.chat_models import chat_model_by_name

    return chat_model_by_name(model)
