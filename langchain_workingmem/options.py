"""The options of a memory, frozen dataclasses that check themselves, and the arguments that calls share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from langchain_workingmem import checks
from langchain_workingmem._text.values import shown
from langchain_workingmem.errors import OptionError
from langchain_workingmem.working_memory.document import DEFAULT_TEMPLATE, Format, JsonFormat, Mode, TextFormat
from langchain_workingmem.working_memory.schema import schema_of

if TYPE_CHECKING:
    from langchain_core.documents import BaseDocumentCompressor
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

Scope: TypeAlias = Literal["user", "thread"]
OnError: TypeAlias = Literal["raise", "log"]
Placement: TypeAlias = Literal["question", "system"]
NumberType: TypeAlias = Literal["float32", "float16", "int8"]
# An IANA name such as "Europe/Berlin", or a function of the ids that returns one.
TimeZone: TypeAlias = "str | Callable[[Ids], str]"
TokenCounter: TypeAlias = "Callable[[Sequence[BaseMessage]], int] | Literal['approximate']"

TIMEOUT = timedelta(seconds=10)  # for each reply
EMBEDDING_TIMEOUT = timedelta(seconds=30)  # plus a second for each text
CONNECT_TIMEOUT = timedelta(seconds=2)  # for a connection, which a running server accepts at once
DEFAULT_LIMIT = 32_000  # tokens; it never cuts the running turn
DEFAULT_TOOLS: Sequence[str] = ("update",)
MOST_HITS = 100_000  # of one recall: the server refuses far larger numbers
# Search 2.10 accepts larger numbers, but some of them, such as m=1_000_000, crash the server
MOST_LINKS, MOST_CANDIDATES = 512, 4096


_CHOICES: dict[str, Any] = {
    "algorithm": Literal["flat", "hnsw"],
    "distance": Literal["cosine", "ip", "l2"],
    "dtype": NumberType,
    "mode": Mode,
    "placement": Placement,
    "scope": Scope,
    "search": Literal["semantic", "hybrid"],
}


def check_fields(options: Any, **least: int) -> None:
    """Check fields by their types; an int is at least 1, or as named here, a float is from 0 to 1."""
    for option in fields(options):
        name, kind, value = option.name, str(option.type), getattr(options, option.name)
        if value is None and kind.endswith("None"):
            continue
        match kind.removesuffix(" | None"):
            case _ if name in _CHOICES:
                checks.one_of(value, get_args(_CHOICES[name]), name)
            case "int":
                checks.at_least(value, least.get(name, 1), name)
            case "BaseChatModel | str" if not isinstance(value, str) and not hasattr(value, "invoke"):
                raise checks.wrong_type(value, name, "pass a chat model, or its name such as 'openai:gpt-4o-mini'")
            case "float":
                checks.check_share(value, name)
            case "timedelta":
                checks.check_time(value, name)
            case "bool" if not isinstance(value, bool):
                raise checks.wrong_type(value, name, "pass True or False")
            case "str" if not isinstance(value, str):
                raise checks.wrong_type(value, name, "pass a str, or None")


class ThreadIds(TypedDict):
    """A thread and its owner, as arguments: `memory.context(text, **ids)` with `ids: ThreadIds = {...}`."""

    thread_id: str
    user_id: str


@dataclass(frozen=True, slots=True)
class Ids:
    """The thread and the user of a run, None where they are not known."""

    thread_id: str | None = None
    user_id: str | None = None

    @property
    def is_thread_alone(self) -> bool:
        """Tell whether a thread is known, but no user."""
        return self.thread_id is not None and self.user_id is None


class RecallArguments(TypedDict, total=False):
    """The arguments of one recall beside the ids. `RecallOptions` gives the others.

    `since` and `until` are inclusive. `metadata` is a filter with `$eq $ne $in $nin $gt $gte $lt $lte $exists $and $or
    $not`, of keys that `RecallOptions(filterable=...)` names, which are read from a message's `additional_kwargs`,
    `additional_kwargs["metadata"]` and `response_metadata`, and of keys of threads that `Memory(thread_filters=...)`
    names. A missing key is None. It has at most 50,000 characters as JSON, and 5,000 parts.
    """

    scope: Scope | None  # "user": all threads of the user; "thread": this thread only
    top_k: int | None  # hits at most
    # what was said around a hit, or before and after it: questions, and answers without tool calls
    message_range: int | tuple[int, int] | None
    threshold: float | None  # the least similarity, 0 to 1
    max_tokens: int | None  # of all that comes back, estimated
    since: datetime | None
    until: datetime | None
    roles: Sequence[str] | str | None
    metadata: Mapping[str, Any] | None
    now: datetime | None  # the time of the question, to which "yesterday" refers; aware. None: the clock
    exclude_message_ids: Collection[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCall:
    """Restrictions of one call of an agent or a graph, as `config["configurable"]["memory"]` holds them.

    Clients write them, so they lift no restriction of middleware, nodes and options: `{"persist": True}` changes
    nothing. An unknown key, or a number that is larger than in the options, raises `OptionError`.

    Args:
        read_only: Show memory, write nothing, give no tools that write.
        persist: False saves no messages of this call; working memory may still be updated.
        working_memory: False: it is not shown, and the model gets no tools of it.
        recall: False: nothing of other threads is shown, but `search_memory` stays; or top_k, scope, metadata, as in
            `recall.search`.
        last_messages: Exactly so many instead of `HistoryOptions.last_messages`, 0: none.
        timezone: Of the user, an IANA name; instead of that of `Memory`.
    """

    read_only: bool = False
    persist: bool = True
    working_memory: bool = True
    recall: Literal[False] | Mapping[str, Any] | None = None
    last_messages: int | None = None
    timezone: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, last_messages=0)
        if self.timezone is not None:
            checks.check_zone(self.timezone, "timezone")
        if self.recall is not None and self.recall is not False and not isinstance(self.recall, Mapping):
            raise OptionError(f"recall={shown(self.recall)}", remedy="use False, or a dict of top_k, scope, metadata")

    @property
    def saves(self) -> bool:
        """Tell whether messages may be saved."""
        return self.persist and not self.read_only


UNLIMITED = PerCall()


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryOptions:
    """Which of a thread's messages a turn shows.

    `last_messages` counts the user's messages and the answers without tool calls. Tool calls and results of the turns
    that are shown come with them. A history that would begin with an answer grows to its question. A turn shows at
    least `last_messages` and fewer than `last_messages + step`: its beginning moves in steps, so that the prompt keeps
    its prefix from turn to turn, which providers bill at a fraction.

    Tokens are limited by leaving out tool traffic first, the oldest before the newest, then the oldest turns; never the
    words of the newest turn. The default limit never cuts the running turn, and is off with `last_messages=None`; a
    number of yours cuts finished tool calls of the running turn, too.

    Args:
        last_messages: How many messages at least; None: all of them, 0: none.
        step: Messages by which the beginning moves; None: `last_messages`, 1: exactly the last ones.
        max_tokens: The limit of tokens; None: none. The default number is the default limit, whoever writes it.
        token_counter: "approximate", 4 characters a token as langchain_core counts English, or a function of messages.
        exclude_tools: Tools whose traffic only their own turn shows: "memory", its own; names: these, too; True: all.
        media: Pictures, audio and files that a model is shown: those of "all" turns, of the "last" turn that has some,
            or of the last n such turns. Others are only named, as in "[picture: map.png]".
        roles: Message types to show; None: all.
    """

    last_messages: int | None = 10
    step: int | None = None
    max_tokens: int | None = DEFAULT_LIMIT
    token_counter: TokenCounter = "approximate"
    exclude_tools: bool | Literal["memory"] | Sequence[str] = "memory"
    media: Literal["all", "last"] | int = "all"
    roles: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_fields(self, last_messages=0)
        if isinstance(self.media, str):
            checks.one_of(self.media, ("all", "last"), "media")
        else:
            checks.at_least(self.media, 1, "media")
        if self.last_messages is None and self.max_tokens == DEFAULT_LIMIT:
            object.__setattr__(self, "max_tokens", None)
        if self.token_counter != "approximate" and not callable(self.token_counter):
            remedy = "use 'approximate' or a function of a list of messages"
            raise OptionError(f"token_counter={shown(self.token_counter)}", remedy=remedy)
        if not isinstance(self.exclude_tools, bool) and self.exclude_tools != "memory":
            names = checks.as_tuple(self.exclude_tools, "exclude_tools", "tool names, 'memory', or a bool")
            object.__setattr__(self, "exclude_tools", names)
        if self.roles is not None:
            object.__setattr__(self, "roles", checks.check_roles(self.roles))


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexOptions:
    """How vectors are indexed. A change needs `memory.recall.reindex()`.

    "flat" compares with every message of the user. It is exact, writes at a sixteenth of the cost of "hnsw", and is
    faster up to about 100,000 messages of one user (0.21 against 0.34 ms at 50,000 messages of 100 users). "float16"
    takes half the bytes of "float32", "int8" a quarter; docs/recall-measured.md says what they find. "int8" needs Redis
    8 (else `RedisCapabilityError`) and distance="cosine": it keeps the direction of a vector, not its length.

    Args:
        algorithm: "flat" or "hnsw".
        distance: "cosine", "ip" or "l2".
        dtype: The number type; None: that of the index, "float16" for a new one.
        m: Links of a node; of "hnsw", like the other two.
        ef_construction: Candidates while the index is built.
        ef_runtime: Candidates of a search.
    """

    algorithm: Literal["flat", "hnsw"] = "flat"
    distance: Literal["cosine", "ip", "l2"] = "cosine"
    dtype: NumberType | None = None
    m: int = 16
    ef_construction: int = 200
    ef_runtime: int = 10

    def __post_init__(self) -> None:
        check_fields(self)
        if self.dtype == "int8" and self.distance != "cosine":
            raise OptionError(f"dtype='int8' with distance={self.distance!r}", remedy="use distance='cosine'")
        for name, limit in (("m", MOST_LINKS), ("ef_construction", MOST_CANDIDATES), ("ef_runtime", MOST_CANDIDATES)):
            checks.at_least(getattr(self, name), 1, name, limit)

    def attributes(self, dims: int, existing: NumberType = "float16") -> dict[str, Any]:
        """Describe the vector field in terms of redisvl; its number type is the `existing` one unless it is set."""
        names = ("m", "ef_construction", "ef_runtime") if self.algorithm == "hnsw" else ()
        attributes = {"dims": dims, "algorithm": self.algorithm, "distance_metric": self.distance}
        return attributes | {"datatype": self.dtype or existing} | {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridWeights:
    """Weights of hybrid recall, 0 to 1; the defaults were tuned on the development data of docs/recall-measured.md.

    Args:
        dense: Of similarity; the rest is for the words of the question (BM25).
        neighbours: Share of the evidence for the messages before and after it that is added to a message.
        author: Added to the messages of an author that the question names.
        time: Added to messages at a time that the question names, less of it to those near.
        length: Subtracted per ln(tokens / 64) of longer messages.
    """

    dense: float = 0.7
    neighbours: float = 0.2
    author: float = 0.3
    time: float = 0.8
    length: float = 0.17

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallOptions:
    """Scope, limits and ranking of semantic recall.

    Args:
        top_k: Hits at most.
        message_range: Questions and answers around a hit, n on each side, or (before, after).
        scope: "user", all threads of the user, or "thread", the one thread.
        threshold: The least similarity of a hit, 0 to 1; None: in a turn the model's own floor (docs/recall.md).
        max_tokens: What a turn shows of recall, long messages as excerpts; None: no limit.
        search: "hybrid", vectors fused with BM25 (docs/recall.md), or "semantic", vectors alone.
        weights: Weights of hybrid recall.
        roles: Messages of these roles are embedded.
        index: How vectors are indexed.
        placement: A turn shows recall before the user's words ("question"), or after your system prompt ("system").
        reranker: Orders four times as many hits again, from which the best are shown (docs/recall.md).
        embedding_timeout: Of an async call of the model or of the reranker, plus a second for each text.
        embedding_cache_size: Texts kept in memory with their vectors, by number, not by size; 0: none.
        chunk_tokens: Longer texts are embedded in chunks; a hit on any chunk is a hit on the message.
        filterable: Keys of message metadata that filters may name.
        when: Finds times in a question beside numbers and English: a function of text and now that gives (from, until).
    """

    top_k: int = 4
    message_range: int | tuple[int, int] = 1
    scope: Scope = "user"
    threshold: float | None = None
    max_tokens: int | None = 2_000
    search: Literal["hybrid", "semantic"] = "hybrid"
    weights: HybridWeights = field(default_factory=HybridWeights)
    roles: Sequence[str] = ("human", "ai")
    index: IndexOptions = field(default_factory=IndexOptions)
    placement: Placement = "question"
    reranker: BaseDocumentCompressor | None = None
    embedding_timeout: timedelta = EMBEDDING_TIMEOUT
    embedding_cache_size: int = 1000
    chunk_tokens: int = 400
    filterable: Sequence[str] = ()
    when: Callable[[str, datetime], Iterable[tuple[datetime, datetime]]] | None = None

    def __post_init__(self) -> None:
        check_fields(self, embedding_cache_size=0)
        checks.at_least(self.top_k, 1, "top_k", MOST_HITS)
        checks.check_type(self.weights, HybridWeights, "weights")
        checks.check_type(self.index, IndexOptions, "index")
        if not (self.reranker is None or hasattr(self.reranker, "compress_documents")):
            raise checks.wrong_type(self.reranker, "reranker", "pass a document compressor of LangChain")
        if not (self.when is None or callable(self.when)):
            raise checks.wrong_type(self.when, "when", "pass a function of a text and the time now")
        object.__setattr__(self, "message_range", checks.check_range(self.message_range))
        object.__setattr__(self, "roles", checks.check_roles(self.roles))
        object.__setattr__(self, "filterable", checks.check_keys(self.filterable, "filterable"))


def thread_filter_keys(keys: Any, recall: RecallOptions) -> tuple[str, ...]:
    """Return the keys of thread metadata that filters may name; none is one of messages, too."""
    declared, others = checks.check_keys(keys, "thread_filters"), recall.filterable
    twice = [key for key in (*declared, *others) if checks.is_named(key, declared) and checks.is_named(key, others)]
    if twice:
        clash = f"thread_filters and RecallOptions(filterable=...) both name {sorted({*twice})}"
        raise OptionError(clash, remedy="name each key once: a filter has to know whether it means threads or messages")
    return declared


@dataclass(frozen=True, kw_only=True)
class WorkingMemoryOptions:
    """The document that an agent keeps about its user or task: its format, scope and limits.

    Either a `template` (Markdown) or a `schema`; neither: the default template; `template=""`: free text.

    With a `keeper` a model keeps the document beside the conversation: each value has its sources, and since when it
    holds. Then the agent gets no tools of working memory, unless `tools` are passed.

    Args:
        template: Markdown with the headings or fields to fill.
        schema: A Pydantic model, TypedDict, dataclass or JSON schema of an object; `{"type": "object"}` takes any.
        scope: "user", one for all threads of a user, or "thread", one for each thread.
        mode: Of updates; None: "merge" for a schema, "replace" for a template, "append" for free text.
        read_only: It is shown, but neither the model nor `update` may change it.
        placement: A turn shows it before the user's words ("question"), or after your system prompt ("system").
        instructions: What to remember, in the prompt; None: the default ones.
        revisions: How many are kept, the present one included.
        max_bytes: Of the document in UTF-8; a larger one is refused.
        tools: Of `memory.tools()`: "get", "update", "clear"; with a keeper none are the default.
        keeper: The chat model that keeps it beside the agent, or its name such as "openai:gpt-5-mini"; None: nobody.
        keep_after: Tokens of messages in a thread that the keeper waits for; 0: it reads after each turn.
        background: The keeper works after a turn is saved; False: only when `keep` is called.
        trust: Roles of messages that are a source: an operation of a keeper that cites none of them is left out.
        show_since: The prompt says since which day each value holds.
    """

    template: str | None = None
    schema: Any = None
    scope: Scope = "user"
    mode: Mode | None = None
    read_only: bool = False
    placement: Placement = "question"
    instructions: str | None = None
    revisions: int = 20
    max_bytes: int = 65536
    tools: Sequence[str] = DEFAULT_TOOLS
    keeper: BaseChatModel | str | None = None
    keep_after: int = 0
    background: bool = True
    trust: Sequence[str] = ("human", "tool")
    show_since: bool = False

    def __post_init__(self) -> None:
        if self.template is not None and self.schema is not None:
            raise OptionError("template and schema", remedy="pass one of them, working memory has one format")
        check_fields(self, keep_after=0)
        tools = () if self.keeper is not None and self.tools is DEFAULT_TOOLS else self.tools
        object.__setattr__(self, "tools", checks.as_tuple(tools, "tools", "'get', 'update', 'clear'"))
        for tool in self.tools:
            checks.one_of(tool, ("get", "update", "clear"), "tools")
        object.__setattr__(self, "trust", checks.check_roles(self.trust, "trust"))
        self.format  # noqa: B018 - a mistake in template, schema or mode shows here
        if self.keeper is not None and self.read_only:
            raise OptionError("keeper and read_only=True", remedy="pass one of them: a keeper changes the document")
        if self.keeper is None and (self.keep_after or not self.background):
            reason = f"keep_after={self.keep_after}" if self.keep_after else "background=False"
            raise OptionError(f"{reason} without a keeper", remedy="pass keeper=..., a model")

    @cached_property
    def format(self) -> Format:
        """Return what reads and writes the document."""
        if self.schema is not None:
            return JsonFormat(schema_of(self.schema), self.mode, self.max_bytes)
        template = DEFAULT_TEMPLATE if self.template is None else self.template
        return TextFormat(template, self.mode, self.max_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class TitleOptions:
    """Titles for threads that have none, made in the background after a turn is saved.

    A title that a person gave, before or meanwhile, is never changed. One of a model goes with the message that it was
    made from. Without a `model`, `MemoryMiddleware` uses its agent's; other ways make none, which is logged once.

    Args:
        model: A chat model, or its name: "openai:gpt-4o-mini", or what `init_chat_model` knows.
        instructions: System prompt instead of the default; "{max_chars}" becomes the number.
        min_messages: In the thread before a title is made.
        max_chars: Of the title.
    """

    model: BaseChatModel | str | None = None
    instructions: str | None = None
    min_messages: int = 2
    max_chars: int = 80

    def __post_init__(self) -> None:
        check_fields(self, max_chars=8)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileOptions:
    """Limits of the files of one owner, as `memory.files` keeps them.

    Args:
        revisions: Older revisions of a file that are kept beside the present one.
        max_file_bytes: Of one file.
        max_bytes: Of all files of an owner, with their revisions.
        max_files: Of an owner.
        ttl: From the last write of an owner until all of the owner's files expire; None: they stay.
    """

    revisions: int = 10
    max_file_bytes: int = 2**20
    max_bytes: int = 256 * 2**20
    max_files: int = 10_000
    ttl: timedelta | None = None

    def __post_init__(self) -> None:
        check_fields(self)
