"""The checked arguments of a search."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.filters import DECLARED, Filter, check_declared, labels_of
from langchain_workingmem._redis.keys import FROM_WHERE, check_id
from langchain_workingmem._redis.queries import build_filter
from langchain_workingmem._text.values import in_zone, to_micros
from langchain_workingmem.checks import (
    as_tuple,
    at_least,
    check_now,
    check_range,
    check_roles,
    check_share,
    is_named,
    one_of,
)
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.options import MOST_HITS, RecallArguments, Scope
from langchain_workingmem.recall.ranking import CANDIDATES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Unpack
    from zoneinfo import ZoneInfo

    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.question import Span

TIMES = 4  # a reranker is given so many times the hits, or the tokens of a budget, that come back
LEAST_RERANKED, MOST_RERANKED = 20, 100  # hits that it is given, unless `top_k` is larger
LEAST = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
SHARE = 4  # a hit takes at most this fraction of a budget, another message of its window half of that


def checked_filter(options: RecallOptions, metadata: Any, thread_filters: Collection[str]) -> Filter:
    """Return a filter of metadata; `OptionError` for a wrong operator, and for a key that neither option declares."""
    wanted = Filter.of(metadata, "metadata")
    check_declared(wanted.keys, (*options.filterable, *thread_filters), DECLARED)
    return wanted


def check_argument_names(arguments: Mapping[str, Any]) -> None:
    """Raise `TypeError`, as Python does, for an argument that recall does not take."""
    if unknown := arguments.keys() - RecallArguments.__optional_keys__:
        known = ", ".join(sorted(RecallArguments.__optional_keys__))
        msg = f"unexpected keyword arguments {sorted(unknown)}: beside those in the signature, use some of {known}"
        raise TypeError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A checked search of messages."""

    text: str
    thread_id: str | None
    user_id: str | None
    scope: Scope
    top_k: int  # hits that come back
    fetched: int  # hits that are looked for: more, where a reranker drops some
    reranked: bool
    window: tuple[int, int]
    threshold: float | None
    max_tokens: int | None  # of the whole result
    most: int  # of these, that one hit takes
    where: Mapping[str, Any]  # filters besides the scope, as `build_filter` takes them
    threads: Filter | None = None  # of their metadata; None: any thread
    unsure: Filter | None = None  # what the index leaves to be checked of messages
    exclude: frozenset[str]  # message ids
    exclude_in: str | None = None  # their thread; None: any thread
    now: datetime  # aware; days and weeks of the question are those of its zone
    timezone: str | None = None  # which the call names, instead of that of the memory
    turn: bool = False  # for a prompt
    before: str = ""  # what it follows up

    @classmethod
    def of(
        cls,
        options: RecallOptions,
        text: str,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        thread_filters: Collection[str] = (),
        turn: bool = False,
        zone: ZoneInfo | None = None,
        **arguments: Unpack[RecallArguments],
    ) -> Query:
        """Check the arguments of a search, or of a `turn`; those that are None or missing come from the options.

        A turn has both limits of the options, a search that names `max_tokens` no other one. Days are those of `zone`, None: of `now`.
        """
        check_argument_names(arguments)
        if not isinstance(text, str):
            raise OptionError(f"query is of type {type(text).__name__}", remedy="pass a str")
        given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        given |= {name: CHECKS[name](value, name) for name, value in given.items() if name in CHECKS}
        for name, id in (("thread_id", thread_id), ("user_id", user_id)):
            if id is not None:
                check_id(id, name)
        scope, max_tokens = given.get("scope", options.scope), given.get("max_tokens")
        if thread_id is None and (scope == "thread" or user_id is None):
            missing = "thread_id" if scope == "thread" else "user_id"
            raise IdError(f"recall over a {scope} needs a {missing}", remedy=FROM_WHERE.format(missing))
        where: dict[str, Any] = {name: given[name] for name in ("since", "until", "roles") if name in given}
        of_threads = unsure = None
        if "metadata" in given:
            where["metadata"], of_threads, unsure = _filters(options, given["metadata"], thread_filters)
        reranked, around = options.reranker is not None, options.message_range
        now = given.get("now") or datetime.now(UTC)
        many = MOST_RERANKED if reranked else CANDIDATES
        top_k = given.get("top_k", options.top_k if turn or max_tokens is None else many)
        budget = options.max_tokens if turn and max_tokens is None else max_tokens
        return cls(
            text=text,
            thread_id=thread_id,
            user_id=user_id,
            scope=scope,
            top_k=top_k,
            fetched=max(top_k, min(max(LEAST_RERANKED, TIMES * top_k), MOST_RERANKED)) if reranked else top_k,
            reranked=reranked,
            window=given.get("message_range") or ((around, around) if isinstance(around, int) else tuple(around)),
            threshold=given.get("threshold", options.threshold),
            max_tokens=budget,
            most=max(LEAST, (budget or 0) // SHARE),
            turn=turn,
            now=now if zone is None else in_zone(now, zone),
            exclude=given.get("exclude_message_ids", frozenset()),
            where=where,
            threads=of_threads,
            unsure=unsure,
        )

    def without(self, thread_id: str) -> Query:
        """Exclude a thread."""
        return replace(self, where={**self.where, "not_thread_ids": [thread_id]})

    def filter(self, times: Collection[Span] = ()) -> str:
        """Build the filter, always with the owner; with times from the first to the last of them."""
        where = dict(self.where)
        if times:
            since, until = min(one.since for one in times), max(one.until for one in times) - 1
            where["since"] = max(since, where.get("since", since))
            where["until"] = min(until, where.get("until", until))
        return build_filter(user_id=self.user_id, thread_id=self.thread_id if self.scope == "thread" else None, **where)


def _filters(
    options: RecallOptions, metadata: Any, thread_filters: Collection[str]
) -> tuple[str, Filter | None, Filter | None]:
    """Return the condition of a filter for the index, the filter of threads, and what is left to be checked of messages."""
    of_threads, others = checked_filter(options, metadata, thread_filters).apart(thread_filters)
    if mixed := sorted(key for key in others.keys if is_named(key, thread_filters)):
        raise OptionError(
            f"metadata: one condition names {mixed} of threads and keys of messages",
            remedy="join what you want of threads and of messages by $and, or search twice",
        )
    # the index knows nothing of other keys
    condition, is_decided = others.condition(
        lambda names, value: labels_of(names, value) if names[0] in options.filterable else None
    )
    return condition, of_threads if of_threads.parts else None, None if is_decided else others


def _checked_ids(ids: Any, name: str) -> frozenset[str]:
    ids = (ids,) if isinstance(ids, str) else as_tuple(ids, name, "message ids")
    return frozenset(check_id(id, "message id") for id in ids)


# what each argument has to be, and becomes
CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "scope": lambda value, name: one_of(value, ("user", "thread"), name),
    "top_k": lambda value, name: at_least(value, 1, name, MOST_HITS),
    "max_tokens": lambda value, name: at_least(value, 1, name),
    "message_range": lambda value, _: check_range(value),
    "threshold": check_share,
    "now": lambda value, _: check_now(value),
    "since": lambda value, _: to_micros(value),
    "until": lambda value, _: to_micros(value),
    "roles": lambda value, _: check_roles(value),
    "exclude_message_ids": _checked_ids,
}
