"""`Memory`: message history, semantic recall, working memory and the turns of agents, on one Redis."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import cached_property, partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from langchain_core.messages import HumanMessage

from langchain_workingmem._engine.calls import chat_model_by_name
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.state import Core, MemoryState, SetUpOnEntry, operation, twin
from langchain_workingmem.checks import check_ttl, check_type, check_zone, one_of
from langchain_workingmem.errors import EmbeddingError, OptionError
from langchain_workingmem.history import History
from langchain_workingmem.history.save import save_turn
from langchain_workingmem.options import (
    CONNECT_TIMEOUT,
    TIMEOUT,
    UNLIMITED,
    FileOptions,
    HistoryOptions,
    OnError,
    PerCall,
    RecallOptions,
    TitleOptions,
    WorkingMemoryOptions,
    thread_filter_keys,
)
from langchain_workingmem.recall import Recall
from langchain_workingmem.recall.question import check_argument_names
from langchain_workingmem.threads import Threads
from langchain_workingmem.turn.assemble import Audience, assemble, question
from langchain_workingmem.turn.gather import TurnPlans
from langchain_workingmem.users import Users
from langchain_workingmem.working_memory.store import WorkingMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta
    from os import PathLike
    from typing import Unpack

    from langchain_core.embeddings import Embeddings
    from langchain_core.messages import BaseMessage, MessageLikeRepresentation
    from langchain_core.runnables import RunnableLambda
    from langchain_core.runnables.utils import ConfigurableFieldSpec
    from langchain_core.tools import BaseTool

    from langchain_workingmem._engine.clients import AsyncClient, SyncClient
    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.faces.runnables import RedisChatMessageHistory, SemanticRecallRetriever
    from langchain_workingmem.files import Files
    from langchain_workingmem.models import Diagnosis, MemoryContext
    from langchain_workingmem.observations import ObservationOptions
    from langchain_workingmem.observations.api import Observations
    from langchain_workingmem.options import Ids, RecallArguments, TimeZone

_log = logging.getLogger("langchain_workingmem")


class Memory(SetUpOnEntry):
    """The memory of agents on one Redis.

    Parts: `threads`, `history`, `recall`, `working_memory`, `files`, `users`, `observations`. Methods with I/O have
    async twins (prefix `a`). One object serves sync and async callers, threads, event loops; it connects at first use.

    Args:
        redis_url: redis://, rediss:// or unix://; None: the environment's REDIS_URL, else redis://localhost:6379.
        client: A redis-py client (also of a cluster, or of a Sentinel's master) for sync calls; memory never closes it.
        async_client: The same for async calls, bound to the event loop that it was made for.
        embeddings: A LangChain embedding model, or its name: "openai:text-embedding-3-small", "local", "multilingual",
            or any name that `init_embeddings` of langchain knows. It turns recall on.
        history: The messages of the thread that a turn shows.
        recall: Options of semantic recall; None: its defaults if there are embeddings; False: off, nothing is embedded.
        working_memory: Options of working memory; True: on with its defaults; None: off.
        title: Titles for threads that have none, made by a model in the background; None: off.
        files: Limits of the files of an owner; None: the defaults.
        observations: A log of long conversations, which a model writes in the background; None: off.
        thread_filters: Keys of thread metadata, such as "project", that filters `metadata=` may name, too.
        timezone: Time zone of the users: an IANA name such as "Europe/Berlin", or a function that gets the `Ids` of a
            call and returns one: for times in prompts, and "yesterday" and the like in questions.
        key_prefix: The start of every key; memories with different prefixes do not see each other.
        ttl: How long after the last write a thread expires with all its data; None: threads stay.
        create_index: False: use existing indexes only, as a Redis user without the right to create them.
        on_error: When the embedding model fails: "raise", or "log" and go on without vectors or recall, or without the
            reranker that failed. With "log", nodes and tools also go on when Redis is away, and a circuit breaker
            keeps them from waiting for it (docs/reliability.md).
        timeout: How long to wait for each reply, and for a connection while all are in use; the URL's `socket_timeout`
            and `timeout` override it. A call may wait twice, as it is repeated where that is safe.
        connect_timeout: To wait for a connection, at most `timeout`; the URL's `socket_connect_timeout` overrides it.
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
        working_memory: WorkingMemoryOptions | bool | None = None,
        title: TitleOptions | None = None,
        files: FileOptions | None = None,
        observations: ObservationOptions | None = None,
        thread_filters: Sequence[str] = (),
        timezone: TimeZone = "UTC",
        key_prefix: str = "wm",
        ttl: timedelta | None = None,
        create_index: bool = True,
        on_error: OnError = "raise",
        timeout: timedelta = TIMEOUT,
        connect_timeout: timedelta = CONNECT_TIMEOUT,
    ) -> None:
        # these import redis-py and asyncio, which would make the import of `Memory` slow
        from langchain_workingmem._engine.calls import Embedder, name_of
        from langchain_workingmem._engine.run import runners

        one_of(on_error, get_args(OnError), "on_error")
        if recall is None and embeddings is not None:
            recall = RecallOptions()
        recalling = None if recall is False else recall
        if isinstance(working_memory, bool):
            working_memory = WorkingMemoryOptions() if working_memory else None
        for value, kind, name in (
            (history, HistoryOptions, "history"),
            (recalling, RecallOptions, "recall"),
            (working_memory, WorkingMemoryOptions, "working_memory"),
            (title, TitleOptions, "title"),
            (files, FileOptions, "files"),
        ):
            if value is not None:
                check_type(value, kind, name)
        if not callable(timezone) or isinstance(timezone, type):
            check_zone(timezone, "timezone")
        if title is not None and isinstance(title.model, str):
            title = replace(title, model=chat_model_by_name(title.model))
        model, recall_options = None, recalling or RecallOptions()
        if recalling is not None:
            from langchain_workingmem.embeddings import embedding_model

            model = embedding_model(embeddings)
        embedder = Embedder(model, recall_options.embedding_cache_size, recall_options.embedding_timeout)
        runner, async_runner = runners(redis_url, client, async_client, timeout, connect_timeout)
        state = MemoryState(
            keys=Keys(key_prefix),
            embedder=embedder,
            recall=recalling,
            working_memory=working_memory,
            title=title,
            files=files,
            thread_filters=thread_filter_keys(thread_filters, recall_options),
            timezone=timezone,
            model=name_of(model) if model else "",
            ttl_ms=check_ttl(ttl),
            create=create_index,
        )
        self._core = core = Core(
            state=state, runner=runner, async_runner=async_runner, new_id=partial(token_hex, 16), on_error=on_error
        )
        if working_memory is not None and working_memory.keeper is not None:
            from langchain_workingmem import keeping

            keeping.install(state)
        self.threads = Threads(core)
        self.history = History(core)
        self.recall = Recall(core)
        self.working_memory = WorkingMemory(core)
        self.users = Users(core)
        history = history or HistoryOptions()
        if observations is not None:
            from langchain_workingmem.observations.wing import install

            self.__dict__["observations"] = install(core, observations)  # where the cached property looks first
            # the log decides what is shown; `last_messages=0` shows it alone
            history = replace(history, last_messages=0 if history.last_messages == 0 else None)
        self._plans = TurnPlans(core, history)
        self._server: Any = None  # an embedded one

    @cached_property
    def files(self) -> Files:
        """Files of users, teams and agents; without the option with its defaults."""
        from langchain_workingmem.files import Files

        return Files(self._core)

    @cached_property
    def observations(self) -> Observations:
        """The log that stands for older messages; without its options it can only be read, and changed by hand."""
        from langchain_workingmem.observations.wing import install

        return install(self._core, None)

    @classmethod
    def embedded(cls, path: str | PathLike[str] | None = None, **arguments: Any) -> Self:
        """Start a private Redis in 40 to 150 ms and return a memory on it; needs the extra `embedded`.

        `arguments` are those of `Memory`. `path` is a directory that keeps the data; None is a temporary one. Processes
        with the same path share one server, until each has ended or called `close`; a call restarts a dead one.
        """
        from langchain_workingmem.embedded import EmbeddedRedis

        server = EmbeddedRedis(path)
        server.start()
        try:
            memory = cls(server.url, **arguments)
        except BaseException:
            server.close()
            raise
        memory._server = server
        memory._core.runner.link.revive = server.start
        return memory

    @operation
    def context(
        self,
        messages: Iterable[MessageLikeRepresentation] | str,
        *,
        thread_id: str,
        user_id: str,
        recall: Literal[False] | None = None,
        last_messages: int | None = None,
        read_only: bool = False,
        working_memory: bool = True,
        **arguments: Unpack[RecallArguments],
    ) -> Plan[MemoryContext]:
        """Assemble what the model is shown in this turn; nothing of the turn is stored.

        `messages` are the new messages, the whole conversation, or a str as the user's message; messages without an id
        get one. `.messages` holds the history and the new messages, on the branch that these define, in a form that
        providers accept. It may begin with an answer, which Bedrock and Gemini refuse; middleware and nodes avoid it.

        Recall searches for the user's last message. What it finds (dated, labelled, escaped) and working memory are put
        before the words of that message, in a copy that is never saved; with placement="system", or without a user's
        message, they are blocks in `.system`, for the end of your system prompt. Working memory comes with the
        instructions to update it, unless `read_only`; then no branch is noted for `save_turn`, either. `recall=False`
        and `working_memory=False` leave these out; `last_messages` counts instead of that of `HistoryOptions`. The
        other arguments limit recall, `top_k` and `max_tokens` together.

        Cost: two round trips, one without recall, a third (and a second call of the embedding model) for a short
        question that follows up (docs/recall.md), and for the first one that names one of several authors.
        """
        core, plans, limits = self._core, self._plans, UNLIMITED
        if arguments or recall is not None or last_messages is not None or working_memory is not True:
            check_argument_names(arguments)
            if recall is not None and (names := sorted({name for name, value in arguments.items() if value} - {"now"})):
                raise OptionError(f"recall={recall} and {', '.join(names)}", remedy="leave one of them out")
            recalling: Any = arguments if recall is None else recall
            limits = PerCall(recall=recalling, working_memory=working_memory, last_messages=last_messages)
        sent = [HumanMessage(messages)] if isinstance(messages, str) else messages
        listed = yield from plans.read_unmarked(sent, thread_id, user_id)
        turn = yield from plans.gather(listed, (thread_id, user_id), limits)
        if not read_only and turn.known is not None:
            branch = turn.followed if turn.followed.changes_branch else None
            plans.notes.note(thread_id, turn.question, replace(turn.known, branch=branch))
        return assemble(core.state, plans.history, turn, listed, Audience(read_only=read_only))

    acontext = twin(context)

    @operation
    def save_turn(
        self, messages: Iterable[MessageLikeRepresentation], *, thread_id: str, user_id: str
    ) -> Plan[list[BaseMessage]]:
        """Save the messages of a turn, and return those that are stored. Atomic up to 500 messages, safe to repeat.

        Pass the turn, or the whole conversation: messages without ids that the thread holds are recognised by their
        text, without outer blanks, and stored once; but a question with its answer is a new turn. Of one without ids
        that agrees with the thread nowhere the last turn is stored, so give ids where you save several new turns.
        Stored messages that contradict the list (or that passed to `context` for this turn), a regenerated answer or
        what followed an edited question, are superseded: only `history.messages(superseded=True)` shows them.

        One round trip; one more for several turns that `context` has not read, two more where ids are stored already.
        """
        core, plans = self._core, self._plans
        listed = yield from plans.read_unmarked(messages, thread_id, user_id)
        user_message = question(listed)
        known = plans.notes.take(thread_id, user_message)
        # if the context has found the question stored, an answer is stored only as long as that is there
        stored_ids = {facts.id for facts in known.facts} if known is not None else set[str]()
        id = user_message.id if user_message is not None and user_message.id in stored_ids else None
        saving = save_turn(core, listed, thread_id, user_id, known=known, question_id=id, keeps_all=True)
        stored, saved = yield from saving
        if known is not None and saved is not None:
            plans.notes.note(thread_id, user_message, replace(saved, next_seq_when_saved=saved.next_seq, branch=None))
        return stored

    asave_turn = twin(save_turn)

    # ------------------------------------------------------------------ what LangChain and LangGraph call

    def tools(
        self,
        *,
        thread_id: str | None = None,
        user_id: str | Callable[[Ids], str] | None = None,
        include: Sequence[str] | None = None,
        trust_client_ids: bool = False,
        name: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> list[BaseTool]:
        """Return tools for `bind_tools`, ToolNode, `create_agent` or a plain `invoke`; they are sync and async.

        `update_working_memory`, `get_working_memory`, `clear_working_memory` as `WorkingMemoryOptions.tools` says, and
        `search_memory` with recall; `include` names others. Ids are bound here (`user_id` may be a function of the
        `Ids` that the run names), or come from the run: the authenticated user of a LangGraph server, its context, or
        `config["configurable"]`. A model cannot choose them. With `trust_client_ids=True` the last two may name another
        user than the authenticated one. A tool that refuses a call tells the model the reason. `name="team"` makes the
        names `update_working_memory_team` and so on, beside those of another memory. `metadata` is a filter of
        `search_memory`, as in `recall.search`; that of `config["configurable"]["memory"]["recall"]` narrows it.
        """
        from langchain_workingmem.faces import resolve
        from langchain_workingmem.faces.tools import memory_tools

        find_ids = partial(resolve, thread_id=thread_id, user_id=user_id, trust_client_ids=trust_client_ids)
        return memory_tools(self._core, find_ids, include=include, name=name, metadata=metadata)

    def load_node(
        self,
        *,
        into: str = "messages",
        read_only: bool = False,
        user_id: str | Callable[[Ids], str] | None = None,
        trust_client_ids: bool = False,
        now: datetime | None = None,
    ) -> RunnableLambda[Any, dict[str, Any]]:
        """Return a StateGraph node that shows memory to the model node after it; sync and async.

        `into="messages"` rewrites that channel (with its `add_messages` reducer): your system messages, the history,
        then the new messages, with memory before the user's last words. These additions are removed at the next turn,
        and never saved; of older messages the channel keeps what is shown. Another name puts a `MemoryContext` into
        that channel of your state. Ids come from the run, as for `tools`; `config["configurable"]["memory"]` restricts
        a single call. `user_id` fixes the owner, whatever user a run names: an id, or a function of the `Ids` that the
        run names. `now` is the time of its questions, None: the clock. Two round trips.
        """
        from langchain_workingmem.faces import finder
        from langchain_workingmem.faces.runnables import load_node

        find_ids = finder(user_id, trust_client_ids=trust_client_ids)
        return load_node(self._plans, find_ids, into=into, read_only=read_only, now=now)

    def save_node(
        self, *, user_id: str | Callable[[Ids], str] | None = None, trust_client_ids: bool = False
    ) -> RunnableLambda[Any, dict[str, Any]]:
        """Return a StateGraph node that saves the turn: the user's last message and all after it.

        One round trip; with a checkpointer two if `load_node` has not run before it in this process, as after a resumed
        graph. Safe under retry policies: saving is idempotent. `user_id` is as in `load_node`, and owns the threads.
        """
        from langchain_workingmem.faces import finder
        from langchain_workingmem.faces.runnables import save_node

        return save_node(self._plans, finder(user_id, trust_client_ids=trust_client_ids))

    def as_retriever(
        self,
        *,
        thread_id: str | None = None,
        user_id: str | Callable[[Ids], str] | None = None,
        trust_client_ids: bool = False,
        **arguments: Unpack[RecallArguments],
    ) -> SemanticRecallRetriever:
        """Return a retriever over recall: one document per hit, its window as text, ids and similarity as metadata.

        Ids that are not bound here come from the run, as for `tools`; a call may pass `top_k` and narrower `metadata`.
        """
        from langchain_workingmem.faces.runnables import SemanticRecallRetriever

        fields: Any = {"thread_id": thread_id, "user_id": user_id, "trust_client_ids": trust_client_ids, **arguments}
        return SemanticRecallRetriever(memory=self, metadata_filter=fields.pop("metadata", None), **fields)

    def chat_history(self, session_id: str, user_id: str | None = None) -> RedisChatMessageHistory:
        """Return a thread as a `BaseChatMessageHistory`; `session_id` is the thread's id.

        `HistoryOptions`, above all `last_messages`, say what it shows; every message is kept. Without `user_id` it is
        the user that a LangGraph server has authenticated, else the owner of the thread; a new thread then owns itself.
        Only this thread is read and written. Pass this method to RunnableWithMessageHistory as the factory, with
        `history_factory_config=memory.config_specs` to name the user in the config as well. A config that names another
        user than the authenticated one raises `IdError`; services may make a `RedisChatMessageHistory`.
        """
        from langchain_workingmem.faces import owner_of_session
        from langchain_workingmem.faces.runnables import RedisChatMessageHistory

        return RedisChatMessageHistory(self, session_id, user_id=owner_of_session(user_id))

    @property
    def config_specs(self) -> list[ConfigurableFieldSpec]:
        """Return the ids that RunnableWithMessageHistory takes from `config["configurable"]` for `chat_history`."""
        from langchain_core.runnables.utils import ConfigurableFieldSpec

        return [ConfigurableFieldSpec(name, str, is_shared=True) for name in ("session_id", "user_id")]

    # ------------------------------------------------------------------ the life of a memory

    @operation
    def setup(self) -> Plan[None]:
        """Create the indexes now instead of at the first use. Idempotent; embeds one text the first time."""
        try:
            yield from self._core.state.indexes.setup()
        except EmbeddingError as error:
            if self._core.on_error == "raise":
                raise
            _log.warning("%s; the index of vectors is created when the model works", error)

    asetup = twin(setup)

    def doctor(self) -> Diagnosis:
        """Check the server, the indexes, the vectors and the model, and say what is wrong and what helps.

        Findings: version, Search, persistence, eviction, memory in use, both indexes, messages without vectors of the
        present settings (of the newest 100 threads, their newest 100; the finding says whether these are all), and
        whether the embedding model fits. Nothing is changed; an unreachable server is a finding, and "unknown" what may
        not be read. Cost: a few round trips, two for each of these threads, and one call of the model.
        """
        return self._core.runner.run(self._diagnosis())

    async def adoctor(self) -> Diagnosis:
        """Async twin of `doctor`."""
        return await self._core.async_runner.run(self._diagnosis())

    def _diagnosis(self) -> Plan[Diagnosis]:
        from langchain_workingmem._redis.doctor import diagnose

        return diagnose(self._core.state)

    def settled(self) -> None:
        """Wait until work in the background is done: titles, vectors. It closes nothing, and raises no failure of it.

        `asettled` waits for the work of the running event loop, too, without blocking it. A timeout around it does not
        end the work. Work that runs when its event loop ends is lost: await `asettled` before `asyncio.run` ends.
        """
        self._core.runner.settled()

    async def asettled(self) -> None:
        """Async twin of `settled`."""
        await self._core.async_runner.settled()
        await self._core.runner.asettled()

    def close(self) -> None:
        """Wait as `settled` does; close the sync connections, and the embedded server unless others use it.

        Every later call raises `MemoryClosedError`, but `close` and `aclose` may be repeated.
        """
        self._core.state.closed = True
        self._core.runner.close()
        if self._server is not None:
            self._server.close()

    async def aclose(self) -> None:
        """Wait for the work of the running event loop and close its connections, then do what `close` does."""
        self._core.state.closed = True
        await self._core.async_runner.aclose(self.close)

    def __repr__(self) -> str:
        state = self._core.state
        parts = {"history": True, "recall": state.recall, "working memory": state.working_memory}
        return f"<Memory {state.keys.prefix!r}: {', '.join(name for name, is_on in parts.items() if is_on)}>"
