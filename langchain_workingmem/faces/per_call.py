"""The restrictions of one call: `config["configurable"]["memory"]`. Clients write them, so they lift no restriction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from langchain_workingmem._text.clock import aware
from langchain_workingmem._text.nesting import shown
from langchain_workingmem.checks import (
    at_least,
    check_range,
    check_roles,
    check_threshold,
    check_type,
    check_zone,
    one_of,
    wrong_type,
)
from langchain_workingmem.errors import OptionError
from langchain_workingmem.faces.ids import outer_run
from langchain_workingmem.options import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem.history import Kind
    from langchain_workingmem.options import HistoryOptions, RecallOptions
    from langchain_workingmem.turn import Gathered, Turn

Recall: TypeAlias = "Literal[False] | Mapping[str, Any] | None"

_PATH = "config['configurable']['memory']"


@dataclass(frozen=True, slots=True, kw_only=True)
class PerCall:
    """Restrictions of one call of an agent or a graph, as `config["configurable"]["memory"]` holds them.

    They add to what middleware, nodes and options say: `{"read_only": False}` and `{"persist": True}` change nothing. An
    unknown key, or a number that is larger than in the options, raises `OptionError`.
    """

    read_only: bool = False  # show memory, write nothing, give no tools that write
    persist: bool = True  # False saves no messages of this call; working memory may still be updated
    # False: none; or top_k, message_range, threshold, max_tokens, metadata, since, until, roles, scope of `recall.search`
    recall: Recall = None
    last_messages: int | None = None  # exactly so many instead of `HistoryOptions.last_messages`, 0: none
    timezone: str | None = None  # of the user, an IANA name; instead of that of `Memory`

    def __post_init__(self) -> None:
        for name in ("read_only", "persist"):
            if not isinstance(given := getattr(self, name), bool):
                raise OptionError(f"{_PATH}[{name!r}]={shown(given)}", remedy="use True or False")
        if self.last_messages is not None:
            at_least(self.last_messages, 0, "last_messages")
        if self.timezone is not None:
            check_zone(self.timezone, f"{_PATH}['timezone']")
        if isinstance(self.recall, Mapping):
            _check_keys(self.recall, _CHECKS, f"{_PATH}['recall']")
            asked = {name: _CHECKS[name](value, name) for name, value in self.recall.items() if value is not None}
            object.__setattr__(self, "recall", asked)
        elif self.recall is not None and self.recall is not False:
            remedy = f"use False, or a dict with some of {', '.join(_CHECKS)}"
            raise OptionError(f"{_PATH}['recall']={shown(self.recall)}", remedy=remedy)

    @classmethod
    def of(cls, config: RunnableConfig | None) -> PerCall:
        """Read and check what the config of a call says, also as JSON has it: times as ISO 8601, pairs as lists.

        A run inside a tool of an agent writes no more than that agent may.
        """
        given = ((config or {}).get("configurable") or {}).get("memory")
        if given is None and (outer := outer_run.get()) is not None:
            given = outer.limits or None
        if given is None:
            return _NOTHING
        keys = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping):
            raise wrong_type(given, _PATH, f"use a dict with some of {', '.join(keys)}")
        _check_keys(given, keys, _PATH)
        return cls(**given)

    @property
    def saves(self) -> bool:
        """Tell whether messages may be saved."""
        return self.persist and not self.read_only

    def within(self, history: HistoryOptions, recall: RecallOptions | None) -> PerCall:
        """Return the same, or raise `OptionError` where it asks for more than the options give."""
        if self.last_messages is not None:
            _at_most(self.last_messages, history.last_messages, "last_messages")
        if not self.recall or recall is None:  # asking for a recall that is off fails later, in `Turn.gather`
            return self
        asked = self.recall
        for name, most in (("top_k", recall.top_k), ("max_tokens", recall.max_tokens)):
            _at_most(asked.get(name, 0), most, name, f"{_PATH}['recall']")
        for wide, widest in zip(asked.get("message_range", (0, 0)), check_range(recall.message_range), strict=True):
            _at_most(wide, widest, "message_range", f"{_PATH}['recall']")
        if recall.threshold is not None and asked.get("threshold", 1) < recall.threshold:
            remedy = f"the options say {recall.threshold}, and a call may only raise it"
            raise OptionError(f"{_PATH}['recall']['threshold']={asked['threshold']}", remedy=remedy)
        if asked.get("scope") == "user" and recall.scope == "thread":
            remedy = "the options say 'thread', and a call may only narrow it"
            raise OptionError(f"{_PATH}['recall']['scope']='user'", remedy=remedy)
        return self

    def gather(
        self,
        turn: Turn,
        messages: Sequence[BaseMessage],
        thread_id: str,
        user_id: str,
        kind: Kind,
        *,
        now: datetime | None = None,
        left_out: frozenset[int] = frozenset(),
    ) -> Plan[Gathered]:
        """Plan what `Turn.gather` does, within these restrictions."""
        call = self.within(turn.history, turn.core.state.recall)
        asked = call.recall or {}
        if asked and (times := [name for name in ("since", "until") if name in asked]):
            zone = turn.core.state.zone(thread_id, user_id, call.timezone)
            asked = {**asked, **{name: aware(asked[name], zone, last=name == "until") for name in times}}
        return turn.gather(
            messages,
            thread_id,
            user_id,
            kind=kind,
            recall=False if call.recall is False else None,
            arguments={**asked, "now": now},
            last_messages=call.last_messages,
            timezone=call.timezone,
            left_out=left_out,
        )


def _at_most(value: int, most: int | None, name: str, path: str = _PATH) -> None:
    if most is not None and value > most:
        raise OptionError(f"{path}[{name!r}]={value}", remedy=f"the options say {most}, and a call may only lower it")


def _check_keys(given: Mapping[Any, Any], known: Collection[str], path: str) -> None:
    if unknown := [key for key in given if key not in known]:
        raise OptionError(f"{path} has unknown keys {unknown}", remedy=f"use some of {', '.join(known)}")


def _time(value: Any, name: str) -> datetime:
    if isinstance(value, datetime):
        return value
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        remedy = "use a datetime, or one in ISO 8601 such as '2025-12-31T12:00:00+00:00'"
        raise OptionError(f"{name}={shown(value)}", remedy=remedy) from None


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "top_k": lambda value, name: at_least(value, 1, name),
    "message_range": lambda value, _: check_range(value),
    "threshold": lambda value, _: check_threshold(value),
    "max_tokens": lambda value, name: at_least(value, 1, name),
    "metadata": lambda value, name: check_type(value, Mapping, name),
    "since": _time,
    "until": _time,
    "roles": check_roles,
    "scope": lambda value, name: one_of(value, get_args(Scope), name),
}
_NOTHING = PerCall()
