"""What a single call may say about memory: `config["configurable"]["memory"]`, which clients write, so it only restricts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from langchain_workingmem._text.nesting import shown
from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import (
    Scope,
    at_least,
    check_range,
    check_roles,
    check_threshold,
    check_type,
    one_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem.options import HistoryOptions, RecallOptions

Recall: TypeAlias = "Literal[False] | Mapping[str, Any] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCall:
    """Restrictions of one call of an agent or a graph, as `config["configurable"]["memory"]` has them.

    They add to what middleware, nodes and options say, and lift nothing: `{"read_only": False}` and `{"persist": True}` change
    nothing, a number that is larger than that of the options is an `OptionError`, as is an unknown key.
    """

    read_only: bool = False  # show memory, write nothing, give no tools that write
    persist: bool = True  # False saves no messages of this call; working memory may still be updated
    # False: none; or top_k, message_range, threshold, max_tokens, metadata, since, until, roles, scope of `recall.search`
    recall: Recall = None
    last_messages: int | None = None  # exactly so many instead of those of `HistoryOptions`, 0: none

    def __post_init__(self) -> None:
        for name in ("read_only", "persist"):
            if not isinstance(given := getattr(self, name), bool):
                raise OptionError(f"{_WHERE}[{name!r}]={shown(given)}", remedy="use True or False")
        if self.last_messages is not None:
            at_least(self.last_messages, 0, "last_messages")
        if isinstance(self.recall, Mapping):
            object.__setattr__(self, "recall", _checked(self.recall))
        elif self.recall is not None and self.recall is not False:
            raise OptionError(
                f"{_WHERE}['recall']={shown(self.recall)}",
                remedy=f"use False, or a dict with some of {', '.join(_CHECKS)}",
            )

    @classmethod
    def of(cls, config: RunnableConfig | None) -> PerCall:
        """Read and check what the config of a call says, also as JSON has it: times as ISO 8601, pairs as lists."""
        given = ((config or {}).get("configurable") or {}).get("memory")
        if given is None:
            return _NOTHING
        if not isinstance(given, Mapping):
            raise OptionError(
                f"{_WHERE} is of type {type(given).__name__}", remedy=f"use a dict with some of {', '.join(_KEYS)}"
            )
        _check_keys(given, _KEYS, _WHERE)
        return cls(**given)

    @property
    def saves(self) -> bool:
        """Tell whether messages may be saved."""
        return self.persist and not self.read_only

    def within(self, history: HistoryOptions, recall: RecallOptions | None) -> PerCall:
        """Return the same, or raise `OptionError` where it asks for more than the options give."""
        if self.last_messages is not None:
            _at_most(self.last_messages, history.last_messages, "last_messages")
        if not self.recall or recall is None:  # where recall is off, whoever asks for it hears so from the plan
            return self
        asked = dict(self.recall)
        for name, most in (("top_k", recall.top_k), ("max_tokens", recall.max_tokens)):
            _at_most(asked.get(name, 0), most, name)
        for wide, widest in zip(asked.get("message_range", (0, 0)), check_range(recall.message_range), strict=True):
            _at_most(wide, widest, "message_range")
        if recall.threshold is not None and asked.get("threshold", 1) < recall.threshold:
            raise OptionError(
                f"{_WHERE}['threshold']={asked['threshold']}",
                remedy=f"the options say {recall.threshold}, and a call may only raise it",
            )
        if asked.get("scope") == "resource" and recall.scope == "thread":
            raise OptionError(
                f"{_WHERE}['scope']='resource'", remedy="the options say 'thread', and a call may only narrow it"
            )
        return replace(self, recall=asked)


def _at_most(value: int, most: int | None, name: str) -> None:
    if most is not None and value > most:
        raise OptionError(f"{_WHERE}[{name!r}]={value}", remedy=f"the options say {most}, and a call may only lower it")


def _check_keys(given: Mapping[Any, Any], known: Mapping[str, Any] | tuple[str, ...], where: str) -> None:
    if unknown := [key for key in given if key not in known]:
        raise OptionError(f"{where} has unknown keys {unknown}", remedy=f"use some of {', '.join(known)}")


def _checked(recall: Mapping[str, Any]) -> dict[str, Any]:
    """Check arguments of recall; None leaves one out."""
    _check_keys(recall, _CHECKS, f"{_WHERE}['recall']")
    return {name: _CHECKS[name](value, name) for name, value in recall.items() if value is not None}


def _count(value: Any, name: str) -> int:
    at_least(value, 1, name)
    return int(value)


def _filters(value: Any, name: str) -> dict[str, Any]:
    check_type(value, Mapping, name)
    return dict(value)


def _time(value: Any, name: str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise OptionError(
            f"{name}={shown(value)}", remedy="use a datetime, or one in ISO 8601 such as '2025-12-31T12:00:00+00:00'"
        ) from None


def _scope(value: Any, name: str) -> Scope:
    one_of(value, get_args(Scope), name)
    scope: Scope = value
    return scope


_WHERE = "config['configurable']['memory']"
_KEYS = tuple(field.name for field in fields(PerCall))
_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "top_k": _count,
    "message_range": lambda value, _: check_range(value),
    "threshold": lambda value, _: check_threshold(value),
    "max_tokens": _count,
    "metadata": _filters,
    "since": _time,
    "until": _time,
    "roles": check_roles,
    "scope": _scope,
}
_NOTHING = PerCall()
