"""What is asked: the checked arguments of a search, and the authors that a question names.

In a chat between persons, "What is Caroline's dog called?" is answered by Caroline, who wrote "my dog". So a name that
a question has as messages do is left out of words and vector, and the messages of its author get a bonus.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from langchain_workingmem import checks
from langchain_workingmem._redis.filters import DECLARED, Filter, check_declared, labels_of
from langchain_workingmem._redis.keys import FROM_WHERE, check_id, decode
from langchain_workingmem._redis.queries import MAX_QUERY_CHARACTERS, build_filter, distinct_words
from langchain_workingmem._text.unicode import QUESTION_MARK, UNSPACED, WORD, keep_ends, to_utf8
from langchain_workingmem._text.values import in_zone, to_micros
from langchain_workingmem.errors import IdError, OptionError
from langchain_workingmem.options import MOST_HITS, RecallArguments, Scope
from langchain_workingmem.recall.ranking import CANDIDATES
from langchain_workingmem.recall.times import named_times

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from typing import Unpack
    from zoneinfo import ZoneInfo

    from langchain_workingmem.options import RecallOptions
    from langchain_workingmem.recall.ranking import Span

RERANK_FACTOR = 4  # a reranker is given so many times the hits, or the tokens of a budget, that come back
LEAST_RERANKED, MOST_RERANKED = 20, 100  # hits that it is given, unless `top_k` is larger
LEAST_TOKENS = 100  # tokens of the shortest excerpt of a hit; half of it for another message of its window
SHARE_OF_A_HIT = 4  # a hit takes at most this fraction of a budget, another message of its window half of that


def checked_filter(options: RecallOptions, metadata: Any, thread_filters: Collection[str]) -> Filter:
    """Return a filter of metadata; `OptionError` for a wrong operator, and for a key that neither option declares."""
    metadata_filter = Filter.of(metadata, "metadata")
    check_declared(metadata_filter.keys, (*options.filterable, *thread_filters), DECLARED)
    return metadata_filter


def check_argument_names(arguments: Mapping[str, Any]) -> None:
    """Raise `TypeError`, as Python does, for an argument that recall does not take."""
    if unknown := arguments.keys() - RecallArguments.__optional_keys__:
        known = ", ".join(sorted(RecallArguments.__optional_keys__))
        msg = f"unexpected keyword arguments {sorted(unknown)}: beside those in the signature, use some of {known}"
        raise TypeError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A checked search of messages."""

    text: str  # of a longer one beginning and end
    asks: bool  # the whole has a question mark
    thread_id: str | None
    user_id: str | None
    scope: Scope
    top_k: int  # hits that come back
    sought: int  # hits that are looked for: `top_k`, or more of them for a reranker to choose from
    reranked: bool
    window: tuple[int, int]  # messages before and after a hit
    threshold: float | None
    max_tokens: int | None  # of the whole result
    most_of_a_hit: int  # tokens of these that one hit takes at most
    where: Mapping[str, Any]  # filters besides the scope, as `build_filter` takes them
    threads: Filter | None = None  # of their metadata; None: any thread
    unsure: Filter | None = None  # what the index leaves to be checked of messages
    exclude: frozenset[str]  # message ids
    exclude_thread: str | None = None  # their thread; None: any thread
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

        A turn has both limits of the options; `max_tokens` of a search is its only one. Days are of `zone` or `now`.
        """
        if not isinstance(text, str):
            raise OptionError(f"query is of type {type(text).__name__}", remedy="pass a str")
        check_argument_names(arguments)
        passed: dict[str, Any] = {name: value for name, value in arguments.items() if value is not None}
        passed |= {name: CHECKS[name](value, name) for name, value in passed.items() if name in CHECKS}
        for name, id in (("thread_id", thread_id), ("user_id", user_id)):
            if id is not None:
                check_id(id, name)
        scope, max_tokens = passed.get("scope", options.scope), passed.get("max_tokens")
        if thread_id is None and (scope == "thread" or user_id is None):
            missing = "thread_id" if scope == "thread" else "user_id"
            raise IdError(f"recall over a {scope} needs a {missing}", remedy=FROM_WHERE.format(missing))
        where: dict[str, Any] = {name: passed[name] for name in ("since", "until", "roles") if name in passed}
        threads = unsure = None
        if "metadata" in passed:
            metadata_filter = checked_filter(options, passed["metadata"], thread_filters)
            threads, unsure = metadata_filter.apart(thread_filters)
            if mixed_keys := sorted(key for key in unsure.keys if checks.is_named(key, thread_filters)):
                raise OptionError(
                    f"metadata: one condition names {mixed_keys} of threads and keys of messages",
                    remedy="join what you want of threads and of messages by $and, or search twice",
                )
            where["metadata"], is_decided = unsure.condition(
                lambda names, value: labels_of(names, value) if names[0] in options.filterable else None
            )
            threads, unsure = threads if threads.parts else None, None if is_decided else unsure
        reranked = options.reranker is not None
        now = passed.get("now") or datetime.now(UTC)
        most_hits = MOST_RERANKED if reranked else CANDIDATES
        window: Any = passed.get("message_range", options.message_range)  # a pair: both are checked
        top_k = passed.get("top_k", options.top_k if turn or max_tokens is None else most_hits)
        budget = options.max_tokens if turn and max_tokens is None else max_tokens
        return cls(
            text=keep_ends(text, MAX_QUERY_CHARACTERS),
            asks=QUESTION_MARK.search(text) is not None,
            thread_id=thread_id,
            user_id=user_id,
            scope=scope,
            top_k=top_k,
            sought=max(top_k, min(max(LEAST_RERANKED, RERANK_FACTOR * top_k), MOST_RERANKED)) if reranked else top_k,
            reranked=reranked,
            window=window,
            threshold=passed.get("threshold", options.threshold),
            max_tokens=budget,
            most_of_a_hit=max(LEAST_TOKENS, (budget or 0) // SHARE_OF_A_HIT),
            turn=turn,
            now=now if zone is None else in_zone(now, zone),
            exclude=passed.get("exclude_message_ids", frozenset()),
            where=where,
            threads=threads,
            unsure=unsure,
        )

    def filter(self, times: Collection[Span] = ()) -> str:
        """Build the filter, always with the owner; with times from the first to the last of them."""
        where = dict(self.where)
        if times:
            since, until = min(span.since for span in times), max(span.until for span in times) - 1
            where["since"] = max(since, where.get("since", since))
            where["until"] = min(until, where.get("until", until))
        return build_filter(user_id=self.user_id, thread_id=self.thread_id if self.scope == "thread" else None, **where)


def _checked_ids(ids: Any, name: str) -> frozenset[str]:
    ids = (ids,) if isinstance(ids, str) else checks.as_tuple(ids, name, "message ids")
    return frozenset(check_id(id, "message id") for id in ids)


# what each argument has to be, and becomes
CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "scope": lambda value, name: checks.one_of(value, ("user", "thread"), name),
    "top_k": lambda value, name: checks.at_least(value, 1, name, MOST_HITS),
    "max_tokens": lambda value, name: checks.at_least(value, 1, name),
    "message_range": lambda value, _: checks.check_range(value),
    "threshold": checks.check_share,
    "now": lambda value, _: checks.check_now(value),
    "since": lambda value, _: to_micros(value),
    "until": lambda value, _: to_micros(value),
    "roles": lambda value, _: checks.check_roles(value),
    "exclude_message_ids": _checked_ids,
}


_RUN = re.compile(f"[{UNSPACED}]{{2,}}")  # one character may be part of any word
# `\b`, but for words that are written without spaces; and "'s" belongs to a name
_NAME = rf"(?<![^\W{UNSPACED}])({{}})(?:['\u2019]s)?(?![^\W{UNSPACED}])"
_COUPLE, _MOST_AUTHORS = 2, 200  # authors of a user; among more, as in a public channel, names tell nothing


@dataclass(frozen=True, slots=True)
class Terms:
    """What is searched for: a question without the authors whom it names, and the times that it names."""

    authors: frozenset[str]  # whom it names by the whole or the first name, as tags
    text: str  # to embed
    words: list[str]  # for a hybrid search
    times: list[Span]

    @classmethod
    def of(cls, options: RecallOptions, query: Query, known: Collection[str]) -> Terms:
        """Divide a question; `known` are the authors of the user, as tags."""
        text = embedded = query.text
        if query.before:
            text = embedded = keep_ends(f"{query.before}\n{query.text}", MAX_QUERY_CHARACTERS)
        names, named_authors = frozenset(filter(None, known)), frozenset[str]()
        if 0 < len(names) <= _MOST_AUTHORS:
            pattern, bearers = _name_pattern(names)
            named_authors = named_authors.union(*(bearers.get(_key(match[1]), ()) for match in pattern.finditer(text)))
            rest = pattern.sub(" ", text)
            text = rest if WORD.search(rest) else text
            embedded = text if len(names) <= _COUPLE else embedded  # as it was asked: that finds .05 more there
        words = distinct_words(text, whole=True) if options.search == "hybrid" else []
        return cls(named_authors, to_utf8(embedded), words, named_times(query.text, query.now, options.when))


def _key(name: str) -> str:
    return "".join(WORD.findall(name.lower()))


@lru_cache(1024)
def _name_pattern(authors: frozenset[str]) -> tuple[re.Pattern[str], dict[str, set[str]]]:
    """Return what finds the names of authors in a text, whole names before first ones, and who bears each."""
    bearers: dict[str, set[str]] = {}
    patterns: dict[str, None] = {}
    for author in authors:
        words = WORD.findall(decode(author))
        for name in (words, words[:1]) if words else ():
            bearers.setdefault(_key(" ".join(name)), set()).add(author)
            patterns[(r"\W*" if _RUN.search(name[0]) else r"\W+").join(map(re.escape, name))] = None
    alternatives = "|".join(sorted(patterns, key=len, reverse=True)) or r"(?!)"
    return re.compile(_NAME.format(alternatives), re.IGNORECASE), bearers
