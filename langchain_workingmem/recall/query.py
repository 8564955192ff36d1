"""The checked arguments of a search, and how deep it looks."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_workingmem._documents.filters import EVERYTHING, is_named
from langchain_workingmem._documents.metadata import DECLARED, labels_of, metadata_filter
from langchain_workingmem._redis.keys import FROM_WHERE, check_id, encode
from langchain_workingmem._redis.queries import build_filter
from langchain_workingmem._text.clock import in_zone, to_micros
from langchain_workingmem.checks import (
    as_tuple,
    at_least,
    at_most,
    check_declared,
    check_now,
    check_range,
    check_roles,
    check_threshold,
    one_of,
)
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.options import MOST_HITS, RecallArguments, Scope
from langchain_workingmem.recall.ranking import CANDIDATES, NEAREST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Unpack
    from zoneinfo import ZoneInfo

    from langchain_workingmem._documents.filters import Filter, Labels
    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.times import Span


TIMES = 4  # as many hits, or tokens of a budget, are looked for as come back of a reranker
CHECKED = 1_000  # candidates of each search whose metadata is checked here
DEEPEST = 1_000_000  # candidates that Search returns at once
LEAST_RERANKED, MOST_RERANKED = 20, 100  # hits that it is given, unless `top_k` is larger


def message_labels(keys: Collection[str]) -> Labels:
    """Return the labels by which the index decides conditions on these keys of messages; it knows nothing of others."""
    return lambda names, value: labels_of(names, value) if names[0] in keys else None


def checked_filter(options: RecallOptions, metadata: Any, thread_filters: Collection[str]) -> Filter:
    """Return a filter of metadata; `OptionError` for a wrong operator, and for a key that neither option declares."""
    wanted = metadata_filter(metadata)
    check_declared(wanted.keys, (*options.filterable, *thread_filters), DECLARED)
    return wanted


def _conditions(options: RecallOptions, metadata: Any, thread_filters: Collection[str]) -> tuple[str, dict[str, Any]]:
    """Return what the index decides of a filter, and the fields of a query that say the rest."""
    if metadata is None:
        return EVERYTHING, {}
    of_threads, others = checked_filter(options, metadata, thread_filters).apart(thread_filters)
    condition, is_decided = others.condition(message_labels(options.filterable))
    checked: dict[str, Any] = {"threads": of_threads} if of_threads.wanted else {}
    if not is_decided:
        mixed = tuple(key for key in others.keys if is_named(key, thread_filters))
        checked |= {"unsure": others, "mixed": mixed}
    return condition, checked


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
    top_k: int  # hits that are looked for
    keep: int  # hits that come back
    window: tuple[int, int]
    threshold: float | None
    max_tokens: int | None  # of the whole result
    where: Mapping[str, Any]  # filters besides the scope
    threads: Filter | None = None  # of their metadata; None: any thread
    unsure: Filter | None = None  # what the index leaves to be checked of messages and, `mixed`, of their threads
    mixed: tuple[str, ...] = ()  # keys of threads in `unsure`
    # by the thread as in keys: its metadata under these keys, once it is looked up
    of_thread: Mapping[bytes, Mapping[str, Any]] = field(default_factory=dict)
    exclude: frozenset[str]  # message ids
    now: datetime  # aware; days and weeks of the question are those of its zone
    timezone: str | None = None  # which the call names, instead of that of the memory
    exclude_in: str | None = None  # their thread; None: any thread
    turn: bool = False  # for a prompt: with a floor of similarity, and without repetitions of the question
    reranked: bool = False  # more hits are looked for than come back

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
        **arguments: Unpack[RecallArguments],
    ) -> Query:
        """Check the arguments of a search, or of a `turn`; those that are None or missing come from the options."""
        check_argument_names(arguments)
        if not isinstance(text, str):
            raise OptionError(f"query is of type {type(text).__name__}", remedy="pass a str")
        given: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        scope = given.get("scope", options.scope)
        one_of(scope, ("user", "thread"), "scope")
        if thread_id is not None:
            check_id(thread_id, "thread_id")
        if user_id is not None:
            check_id(user_id, "user_id")
        if thread_id is None and (scope == "thread" or user_id is None):
            missing = "thread_id" if scope == "thread" else "user_id"
            raise IdError(f"recall over a {scope} needs a {missing}", remedy=FROM_WHERE.format(missing))
        max_tokens = given.get("max_tokens")
        if max_tokens is not None:
            at_least(max_tokens, 1, "max_tokens")
        has_reranker = options.reranker is not None
        many = MOST_RERANKED if has_reranker else CANDIDATES
        top_k = given.get("top_k", options.top_k if max_tokens is None else many)
        at_least(top_k, 1, "top_k")
        at_most(top_k, MOST_HITS, "top_k")
        check_threshold(given.get("threshold"))
        condition, checked = _conditions(options, given.get("metadata"), thread_filters)
        return cls(
            text=text,
            thread_id=thread_id,
            user_id=user_id,
            scope=scope,
            top_k=max(top_k, min(max(LEAST_RERANKED, TIMES * top_k), MOST_RERANKED)) if has_reranker else top_k,
            keep=top_k,
            window=check_range(given.get("message_range", options.message_range)),
            threshold=given.get("threshold", options.threshold),
            max_tokens=max_tokens,
            reranked=has_reranker,
            turn=turn,
            where={
                "roles": check_roles(given["roles"]) if "roles" in given else (),
                "since": to_micros(given["since"]) if "since" in given else None,
                "until": to_micros(given["until"]) if "until" in given else None,
                "metadata": condition,
            },
            **checked,
            now=check_now(given["now"]) if "now" in given else datetime.now(UTC),
            exclude=_checked_ids(given.get("exclude_message_ids", ())),
        )

    @classmethod
    def of_turn(
        cls,
        options: RecallOptions,
        text: str,
        thread_id: str,
        user_id: str,
        given: Mapping[str, Any],
        thread_filters: Collection[str] = (),
    ) -> Query:
        """Check the arguments of a turn; without limits of its own, it takes both limits from the options."""
        limits = {name: getattr(options, name) for name in ("top_k", "max_tokens") if given.get(name) is None}
        ids: dict[str, Any] = {"thread_id": thread_id, "user_id": user_id, "thread_filters": thread_filters}
        return cls.of(options, text, **ids, turn=True, **{**given, **limits})

    def in_zone(self, zone: ZoneInfo | None) -> Query:
        """Ask in the time zone of a user; None: in that of `now`."""
        return self if zone is None else replace(self, now=in_zone(self.now, zone))

    def passes(self, thread: bytes, metadata: bytes | None) -> bool:
        """Tell whether a candidate has the metadata that is wanted, where the index does not decide it."""
        own = json.loads(metadata) if metadata else {}
        return self.unsure is None or self.unsure.matches({**self.of_thread.get(thread, {}), **own})

    def among(self, found: Mapping[str, Mapping[str, Any]]) -> Query:
        """Search these threads only, if its filter chooses threads; they come with their metadata."""
        where = self.where if self.threads is None else {**self.where, "thread_ids": [*found]}
        return replace(self, where=where, of_thread={encode(id).encode(): own for id, own in found.items()})

    def depth(self, spare: int, *, hybrid: bool) -> int:
        """Return how many candidates are searched: also those that may not count as hits."""
        wanted = self.top_k * 2 + spare + len(self.exclude) + 8
        return min(max(CHECKED if self.unsure else CANDIDATES if hybrid else NEAREST, wanted), DEEPEST)

    def without(self, thread_ids: Collection[str]) -> Query:
        """Exclude threads."""
        excluded = [*self.where.get("not_thread_ids", ()), *thread_ids]
        return replace(self, where={**self.where, "not_thread_ids": excluded})

    def filter(self, **also: int) -> str:
        """Build the filter, always with the owner."""
        thread_id = self.thread_id if self.scope == "thread" else None
        return build_filter(user_id=self.user_id, thread_id=thread_id, **{**self.where, **also})

    def during(self, times: Collection[Span]) -> str | None:
        """Build the filter for the times that it names, from the first to the last; None if it names none."""
        if not times:
            return None
        since, until = min(one.since for one in times), max(one.until for one in times) - 1
        earliest, latest = self.where["since"], self.where["until"]
        since = since if earliest is None else max(since, earliest)
        return self.filter(since=since, until=until if latest is None else min(until, latest))


def _checked_ids(ids: Any) -> frozenset[str]:
    ids = (ids,) if isinstance(ids, str) else as_tuple(ids, "exclude_message_ids", "message ids")
    return frozenset(check_id(id, "message id") for id in ids)
