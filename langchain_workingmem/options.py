"""The options of a memory: frozen dataclasses, checked when they are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence  # noqa: TC003 - for who resolves `RecallArguments`
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from langchain_workingmem._documents.formats import DEFAULT_TEMPLATE, Format, JsonFormat, Mode, TextFormat
from langchain_workingmem._documents.schemas import schema_of
from langchain_workingmem._text.nesting import shown
from langchain_workingmem.checks import (
    as_tuple,
    at_least,
    at_most,
    check_keys,
    check_model,
    check_range,
    check_roles,
    check_threshold,
    check_time,
    check_type,
    one_of,
    wrong_type,
)
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from langchain_core.documents import BaseDocumentCompressor
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import BaseMessage

Scope: TypeAlias = Literal["resource", "thread"]
OnError: TypeAlias = Literal["raise", "log"]
Placement: TypeAlias = Literal["question", "system"]
NumberType: TypeAlias = Literal["float32", "float16", "int8"]
# A function takes the question and a list of `RecallHit`, and returns some of them, the best first; it may be async.
Reranker: TypeAlias = "BaseDocumentCompressor | Callable[[str, list[Any]], Any]"
# A function takes copies of messages and the ids of their thread, and returns what may be sent of them; it may be async.
BeforeObserving: TypeAlias = "Callable[[list[BaseMessage], Ids], Any]"
# An IANA name such as "Europe/Berlin", or a function of the ids that returns one.
TimeZone: TypeAlias = "str | Callable[[Ids], str]"
TokenCounter: TypeAlias = "Callable[[Sequence[BaseMessage]], int] | Literal['approximate']"

TIMEOUT = timedelta(seconds=10)  # for each reply
EMBEDDING_TIMEOUT = timedelta(seconds=30)  # plus a second for each text
CONNECT_TIMEOUT = timedelta(seconds=2)  # for a connection, which a running server accepts at once
MOST_HITS = 100_000  # of one recall: the server refuses far larger numbers
# Search 2.10 accepts larger numbers, but some of them, such as m=1_000_000, crash the server
MOST_LINKS, MOST_CANDIDATES = 512, 4096


@dataclass(frozen=True, slots=True)
class Ids:
    """The thread and the user of a run, None where they are not known."""

    thread_id: str | None = None
    resource_id: str | None = None

    @property
    def is_thread_alone(self) -> bool:
        """Tell whether a thread is known, but no user."""
        return self.thread_id is not None and self.resource_id is None


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryOptions:
    """Which of a thread's messages a turn shows.

    `last_messages` counts the user's messages and the answers without tool calls. Tool calls and results of the turns that
    are shown come with them. A history that would begin with an answer grows to its question. A turn shows at least
    `last_messages` and fewer than `last_messages + step`: its beginning moves in steps, so that the prompt keeps its prefix
    from turn to turn, which providers bill at a fraction.
    """

    last_messages: int | None = 10  # None: all of them, 0: none
    step: int | None = None  # messages by which the beginning moves; None: `last_messages`, 1: exactly the last ones
    # Tool traffic is dropped first, the oldest before the newest, then the oldest turns; never the words of the newest turn
    max_tokens: int | None = None  # with observations finished tool calls of the running turn are dropped, too
    token_counter: TokenCounter = "approximate"  # of English as langchain_core counts: 4 characters a token
    # Tools whose calls and results are shown in their own turn only: memory's; or memory's and the named ones; True: all
    exclude_tools: bool | Literal["memory"] | Sequence[str] = "memory"
    # Pictures, audio and files that a model is shown: those of all turns, of the last turn that has some, or of the last n such turns.
    # In a copy, the others are named, as in "[picture: map.png]": their answers stay, and the prompt costs less
    media: Literal["all", "last"] | int = "all"
    roles: Sequence[str] | None = None  # message types to show, None: all

    def __post_init__(self) -> None:
        one_of(self.media, ("all", "last"), "media") if isinstance(self.media, str) else at_least(
            self.media, 1, "media"
        )
        for name, least in (("last_messages", 0), ("step", 1), ("max_tokens", 1)):
            if (value := getattr(self, name)) is not None:
                at_least(value, least, name)
        if self.token_counter != "approximate" and not callable(self.token_counter):
            remedy = "use 'approximate' or a function of a list of messages"
            raise OptionError(f"token_counter={shown(self.token_counter)}", remedy=remedy)
        if not isinstance(self.exclude_tools, bool) and self.exclude_tools != "memory":
            names = as_tuple(self.exclude_tools, "exclude_tools", "tool names, 'memory', or a bool")
            object.__setattr__(self, "exclude_tools", names)
        if self.roles is not None:
            object.__setattr__(self, "roles", check_roles(self.roles))


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexOptions:
    """How vectors are indexed. A change needs `memory.recall.reindex()`.

    "flat" compares with every message of the resource. It is exact, writes at a sixteenth of the cost of "hnsw", and is
    faster up to about 100,000 messages of one resource (0.21 against 0.34 ms at 50,000 messages of 100 resources).
    "float16" takes half the bytes of "float32", "int8" a quarter; docs/recall.md says what they find. "int8" needs Redis 8
    (else `RedisCapabilityError`) and distance="cosine": it keeps the direction of a vector, not its length.
    """

    algorithm: Literal["flat", "hnsw"] = "flat"
    distance: Literal["cosine", "ip", "l2"] = "cosine"
    dtype: NumberType | None = None  # None: keep the number type of the index; float16 for a new one
    m: int = 16  # hnsw: links of a node
    ef_construction: int = 200  # hnsw: candidates while building
    ef_runtime: int = 10  # hnsw: candidates while searching

    def __post_init__(self) -> None:
        one_of(self.algorithm, ("flat", "hnsw"), "algorithm")
        one_of(self.distance, ("cosine", "ip", "l2"), "distance")
        if self.dtype is not None:
            one_of(self.dtype, get_args(NumberType), "dtype")
        if self.dtype == "int8" and self.distance != "cosine":
            raise OptionError(f"dtype='int8' with distance={self.distance!r}", remedy="use distance='cosine'")
        for name, most in (("m", MOST_LINKS), ("ef_construction", MOST_CANDIDATES), ("ef_runtime", MOST_CANDIDATES)):
            at_most(at_least(getattr(self, name), 1, name), most, name)

    def attributes(self, dims: int, existing: NumberType = "float16") -> dict[str, Any]:
        """Describe the vector field in the terms of redisvl; the number type is the `existing` one unless one was passed."""
        own = ("m", "ef_construction", "ef_runtime") if self.algorithm == "hnsw" else ()
        found = {"dims": dims, "algorithm": self.algorithm, "distance_metric": self.distance}
        return found | {"datatype": self.dtype or existing} | {name: getattr(self, name) for name in own}


@dataclass(frozen=True, kw_only=True, slots=True)
class HybridWeights:
    """Weights of hybrid recall, 0 to 1; the defaults were tuned on the development data of docs/recall.md."""

    dense: float = 0.7  # of similarity; the rest is for the words of the question (BM25)
    neighbours: float = 0.2  # share of the evidence for the messages before and after it that is added to a message
    thread: float = 0.2  # share of the best evidence in its thread that is added to a message
    author: float = 0.3  # added to the messages of an author that the question names
    time: float = 0.8  # added to messages at a time that the question names, less of it to those near
    length: float = 0.17  # subtracted per ln(tokens / 64) of longer messages

    def __post_init__(self) -> None:
        for weight in fields(self):
            value = getattr(self, weight.name)
            if not isinstance(value, int | float) or not 0 <= value <= 1:
                raise OptionError(f"{weight.name}={shown(value)}", remedy="use a weight from 0 to 1")


class RecallArguments(TypedDict, total=False):
    """The arguments of one recall beside the ids. `RecallOptions` gives the others.

    `since` and `until` are inclusive. `metadata` is a filter with `$eq $ne $in $nin $gt $gte $lt $lte $exists $and $or $not`, of keys
    that `RecallOptions(filterable=...)` names, which are read from a message's `additional_kwargs`, `additional_kwargs["metadata"]`
    and `response_metadata`, and of keys of threads that `Memory(thread_filters=...)` names. A missing key is None.
    """

    scope: Scope | None  # "resource": all threads of the resource; "thread": this thread only
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


class ContextArguments(RecallArguments, total=False):
    """The arguments of `Memory.context` beside the messages and the ids; the others limit recall."""

    read_only: (
        bool  # working memory comes without the instructions to update it, and no branch is noted; default: False
    )
    recall: Literal[False] | None  # False: nothing is recalled
    last_messages: int | None  # instead of `HistoryOptions.last_messages`; 0: no history


HITS_BESIDE_LOG = 10  # of a turn, unless a number is given: a log says less than the messages that it covers


class DefaultHits(int):
    """A number of hits that nobody chose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallOptions:
    """Scope, limits and ranking of semantic recall."""

    top_k: int = DefaultHits(4)  # hits; 10 in a memory with observations, unless a number is given
    # around a hit, n on each side, or (before, after): questions, and answers without tool calls
    message_range: int | tuple[int, int] = 1
    scope: Scope = "resource"  # all threads of the resource, or the one thread
    threshold: float | None = (
        None  # least similarity of a hit, 0 to 1; None: in a turn, the measured minimum of a known model
    )
    max_tokens: int | None = 2_000  # that a turn shows of recall, long messages as excerpts; None: no limit
    search: Literal["hybrid", "semantic"] = "hybrid"  # vectors fused with BM25 (docs/recall.md), or vectors alone
    weights: HybridWeights = field(default_factory=HybridWeights)  # of hybrid recall
    roles: Sequence[str] = ("human", "ai")  # messages of these roles are embedded
    index: IndexOptions = field(default_factory=IndexOptions)
    placement: Placement = "question"  # a turn shows it before the user's words; "system": after your system prompt
    # Orders four times as many hits again, from which the best are shown (docs/recall.md): a document compressor of
    # LangChain, or a function of the question and the hits
    reranker: Reranker | None = None
    # of an async call of the model or of the reranker, plus a second for each text
    embedding_timeout: timedelta = EMBEDDING_TIMEOUT
    embedding_cache_size: int = 1000  # texts kept in memory with their vectors, at most 64 MiB in all; 0: none
    chunk_tokens: int = 400  # longer texts are embedded in chunks; a hit on any chunk is a hit on the message
    filterable: Sequence[str] = ()  # keys of message metadata that filters may name

    def __post_init__(self) -> None:
        at_most(at_least(self.top_k, 1, "top_k"), MOST_HITS, "top_k")
        check_range(self.message_range)
        one_of(self.scope, get_args(Scope), "scope")
        check_threshold(self.threshold)
        if self.max_tokens is not None:
            at_least(self.max_tokens, 1, "max_tokens")
        one_of(self.search, ("semantic", "hybrid"), "search")
        check_type(self.weights, HybridWeights, "weights")
        check_type(self.index, IndexOptions, "index")
        object.__setattr__(self, "roles", check_roles(self.roles))
        one_of(self.placement, get_args(Placement), "placement")
        if not (self.reranker is None or hasattr(self.reranker, "compress_documents") or callable(self.reranker)):
            raise wrong_type(self.reranker, "reranker", "pass a document compressor, or a function (question, hits)")
        check_time(self.embedding_timeout, "embedding_timeout")
        at_least(self.embedding_cache_size, 0, "embedding_cache_size")
        at_least(self.chunk_tokens, 1, "chunk_tokens")
        object.__setattr__(self, "filterable", check_keys(self.filterable, "filterable"))


@dataclass(frozen=True, kw_only=True)
class WorkingMemoryOptions:
    """The document that an agent keeps about its user or task: its format, scope and limits.

    Either a `template` (Markdown) or a `schema` (a Pydantic model, a TypedDict, a dataclass or a JSON schema); neither:
    the default template; `template=""`: free text. A schema names fields of an object; `{"type": "object"}` takes any.
    `template` and `instructions` may be functions of the ids, so that they differ between users. They are called at every
    read and update: they must be fast, and return the same for the same ids. A function makes a template, never free text.
    """

    template: str | Callable[[Ids], str] | None = None
    schema: Any = None
    scope: Scope = "resource"  # one for all threads of a resource, or one for each thread
    mode: Mode | None = None  # of updates; None: merge for a schema, replace for a template, append for free text
    read_only: bool = False  # shown, but neither the model nor `update` may change it
    placement: Placement = "question"  # a turn shows it before the user's words; "system": after your system prompt
    instructions: str | Callable[[Ids], str] | None = None  # what to remember, in the prompt; None: the default ones
    revisions: int = 20  # how many are kept, the present one included
    max_bytes: int = 65536  # of the document in UTF-8; a larger one is refused
    tools: Sequence[str] = ("update",)  # of `memory.tools()`: "get", "update", "clear"

    def __post_init__(self) -> None:
        if self.template is not None and self.schema is not None:
            raise OptionError("template and schema", remedy="pass one of them, working memory has one format")
        if not _is_text(self.template):
            raise wrong_type(self.template, "template", "pass a function of the ids, Markdown as a str, or a schema")
        if not _is_text(self.instructions):
            raise wrong_type(self.instructions, "instructions", "pass a str, or a function of the ids")
        one_of(self.scope, get_args(Scope), "scope")
        if self.mode is not None:
            one_of(self.mode, get_args(Mode), "mode")
        one_of(self.placement, get_args(Placement), "placement")
        at_least(self.revisions, 1, "revisions")
        at_least(self.max_bytes, 1, "max_bytes")
        object.__setattr__(self, "tools", as_tuple(self.tools, "tools", "'get', 'update', 'clear'"))
        for tool in self.tools:
            one_of(tool, ("get", "update", "clear"), "tools")
        self.format  # noqa: B018 - a mistake in template, schema or mode shows here

    @cached_property
    def format(self) -> Format:
        """Return what reads and writes the document; with a template per user, what all of them share."""
        if self.schema is not None:
            return JsonFormat(schema_of(self.schema), self.mode)
        if callable(self.template):
            return self.format_for(DEFAULT_TEMPLATE)
        return TextFormat(DEFAULT_TEMPLATE if self.template is None else self.template, self.mode)

    @property
    def is_personal(self) -> bool:
        """Tell whether template or instructions depend on the ids."""
        return callable(self.template) or callable(self.instructions)

    def format_for(self, template: str | None) -> Format:
        """Return what reads and writes the document of a user; `template` is what `template_for` returned."""
        return TextFormat(template or "", self.mode or "replace") if callable(self.template) else self.format

    def template_for(self, ids: Ids) -> str | None:
        """Return the template of a user, None where there is none."""
        if callable(self.template):
            return _text_of(self.template, ids, "template")
        return getattr(self.format, "template", None) or None

    def instructions_for(self, ids: Ids) -> str | None:
        """Return the instructions for a user, None where there are none."""
        return _text_of(self.instructions, ids, "instructions") if callable(self.instructions) else self.instructions


def _is_text(value: object) -> bool:
    """Tell whether a value is a text or a function that makes one; a class is neither."""
    return value is None or isinstance(value, str) or (callable(value) and not isinstance(value, type))


def _text_of(make: Callable[[Ids], str], ids: Ids, name: str) -> str:
    text: object = make(ids)
    if not isinstance(text, str):
        raise OptionError(f"{name} returned a value of type {type(text).__name__}", remedy="return a str")
    return text


@dataclass(frozen=True, kw_only=True, slots=True)
class TitleOptions:
    """Titles for threads that have none, made in the background after a turn is saved.

    A title that a person gave, before or meanwhile, is never changed. One of a model goes with the message that it was made
    from. Without a `model`, `MemoryMiddleware` uses the model of its agent; other ways to save a turn then make no title, which
    is logged once.
    """

    model: BaseChatModel | str | None = None  # or its name: "openai:gpt-4o-mini", or what `init_chat_model` knows
    instructions: str | None = None  # system prompt instead of the default; "{max_chars}" becomes the number
    min_messages: int = 2  # in the thread before a title is made
    max_chars: int = 80

    def __post_init__(self) -> None:
        at_least(self.min_messages, 1, "min_messages")
        at_least(self.max_chars, 8, "max_chars")
        if self.model is not None:
            check_model(self.model, "model")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObservationOptions:
    """Let a model turn older messages into a short log of dated lines. The agent is shown the log in place of these messages.

    The messages stay in history and in recall. Tokens are estimated: 4 characters each.
    """

    model: BaseChatModel | str  # the observer, or its name: "openai:gpt-5-mini", or what `init_chat_model` knows
    scope: Scope = "thread"  # one log for each thread, or one for all threads of a resource
    message_tokens: int = 30_000  # of messages without observations; from this number on the oldest are observed
    block_after: int | None = None  # of such messages; above it the next step waits for the observer, at most `timeout`
    keep_tokens: int = 6_000  # of the newest messages; these and the present turn are always shown as they are
    batch_tokens: int = 10_000  # of messages in one call of the model, at most
    observation_tokens: int = 40_000  # of the log; from this number on its oldest half is condensed
    reflector: BaseChatModel | str | None = None  # the model that condenses, or its name; None: `model`
    instructions: str | None = None  # added to the prompts of both, such as what matters in your domain
    background: bool = True  # after a turn is saved; False: only when `observe` is called
    # Redacts or drops what the observer and the model of titles may not read; what it drops counts as observed
    before_observing: BeforeObserving | None = None
    attachments: bool | Literal["auto"] = (
        "auto"  # the observer reads pictures, audio and files; "auto": as its profile says
    )
    timeout: timedelta = timedelta(minutes=2)  # for each call of a model
    tools: Sequence[
        str
    ] = ()  # of `memory.tools()`: "open", which reads the messages of a line; lines then show a short id
    # "question": before the first shown message; "system": after your system prompt; None: "system" if recall and working
    # memory (those that are on) have this placement, else "question"
    placement: Placement | None = None

    def __post_init__(self) -> None:
        check_model(self.model, "model")
        if self.reflector is not None:
            check_model(self.reflector, "reflector")
        one_of(self.scope, get_args(Scope), "scope")
        least = {"message_tokens": 1, "keep_tokens": 0, "batch_tokens": 1, "observation_tokens": 1}
        for name, smallest in least.items():
            at_least(getattr(self, name), smallest, name)
        if self.keep_tokens >= self.message_tokens:
            seen = f"keep_tokens={self.keep_tokens} with message_tokens={self.message_tokens}"
            raise OptionError(seen, remedy="keep fewer tokens than those at which messages are observed")
        if self.block_after is not None and at_least(self.block_after, 1, "block_after") < self.message_tokens:
            raise OptionError(f"block_after={self.block_after}", remedy=f"pass at least {self.message_tokens}")
        if not isinstance(self.instructions, str | None):
            raise wrong_type(self.instructions, "instructions", "pass a str, or None")
        if not isinstance(self.background, bool):
            raise wrong_type(self.background, "background", "pass True or False")
        if self.before_observing is not None and not callable(self.before_observing):
            raise wrong_type(self.before_observing, "before_observing", "pass a function of messages and ids, or None")
        one_of(self.attachments, (True, False, "auto"), "attachments")
        check_time(self.timeout, "timeout")
        object.__setattr__(self, "tools", as_tuple(self.tools, "tools", "'open'"))
        for tool in self.tools:
            one_of(tool, ("open",), "tools")
        if self.placement is not None:
            one_of(self.placement, get_args(Placement), "placement")
