"""A small bitemporal model: what was said is told again in its order, message by message, into a tree of what holds."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Any, NamedTuple

from langchain_workingmem.keeping.claims import Claim, Source

Message = tuple[str, str]  # thread and id
SAID = {("t", f"m{at}"): 10 * at + 10 for at in range(8)} | {("u", f"n{at}"): 10 * at + 5 for at in range(3)}
SEQS = {message: at for at, message in enumerate(SAID)}


class Op(NamedTuple):
    """What somebody says about a value; without messages it is said at a moment of its own."""

    path: str
    value: Any
    is_set: bool
    messages: tuple[Message, ...]
    moment: int
    order: int
    origin: str

    def claim(self) -> Claim:
        sources = tuple(Source(*one, SEQS[one], SAID[one]) for one in self.messages)
        said_at = max((one.said_at for one in sources), default=self.moment)
        return Claim(
            path=self.path,
            value=self.value if self.is_set else None,
            is_set=self.is_set,
            said_at=said_at,
            recorded_at=1,
            origin=self.origin,
            sources=sources,
            order=self.order,
        )


class Told(NamedTuple):
    """A value that held: since when, until when, by which messages."""

    value: Any
    is_set: bool
    since: int
    until: int | None
    messages: frozenset[Message]


class Model:
    """The ops that stand on a message that is there, or on none."""

    def __init__(self, ops: Iterable[Op], gone: Collection[Message] = ()) -> None:
        known: dict[Any, Op] = {}
        for op in ops:
            left = tuple(one for one in op.messages if one not in gone)
            if op.messages and not left:
                continue
            moment = max((SAID[one] for one in left), default=op.moment)
            new = op._replace(messages=left, moment=moment)
            # a keeper that says the same twice, by the same messages, says it once, and first
            name = (op.path, _text(op), op.is_set, frozenset(left)) if op.origin == "keeper" and left else len(known)
            known[name] = min(known.get(name, new), new, key=lambda op: op.order)
        self.ops = sorted(known.values(), key=_place)

    def document(self, moment: float = 1e9) -> Any:
        """Return what holds at a moment."""
        tree: dict[str, Any] = {}
        for op in self.ops:
            if op.moment <= moment:
                _say(tree, op)
        return as_document(tree)

    def history(self, path: str) -> list[Told]:
        """Return what held at a path, the newest first."""
        tree: dict[str, Any] = {}
        told: list[Told] = []
        for moment, some in groupby(self.ops, key=lambda op: op.moment):
            last: list[Op] = []  # what counts at this moment, with what says the same just before
            said = None
            for op in some:
                before = _leaf(tree, path)
                _say(tree, op)
                after = _leaf(tree, path)
                if op.path == path or (after is None and before is not None):
                    last = [*last, op] if last and json.dumps(after) == said else [op]
                    said = json.dumps(after)
            if not last:
                continue
            cited = {message for op in last for message in op.messages}
            leaf = _leaf(tree, path)
            is_set, value = leaf is not None, leaf and leaf[0]
            if told and told[-1].is_set == is_set and json.dumps(told[-1].value) == json.dumps(value):
                told[-1] = told[-1]._replace(messages=told[-1].messages | cited)
            elif told or is_set:
                if told:
                    told[-1] = told[-1]._replace(until=moment)
                told.append(Told(value, is_set, moment, None, frozenset(cited)))
        return told[::-1]


def _place(op: Op) -> tuple[Any, ...]:
    return op.moment, op.order, op.is_set, _text(op), op.path, op.claim().sources, op.origin


def _text(op: Op) -> str:
    return "" if not op.is_set else f'"{op.value}' if isinstance(op.value, str) else json.dumps(op.value)


def _names(path: str) -> list[str]:
    return path.split("/")[1:]


def _say(tree: dict[str, Any], op: Op) -> None:
    """Set or remove a value; a value is a tuple of one, and what has parts is a dict."""
    names = _names(op.path)
    if not names:
        tree.clear()
        return
    for name in names[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            if not op.is_set:
                return
            inner = tree[name] = {}
        tree = inner
    if op.is_set:
        tree[names[-1]] = (op.value,)
    else:
        tree.pop(names[-1], None)


def _leaf(tree: Any, path: str) -> Any:
    for name in _names(path):
        tree = tree.get(name) if isinstance(tree, dict) else None
    return tree if isinstance(tree, tuple) else None


def as_document(tree: Any, path: str = "") -> Any:
    """Write a tree as a `Person` of the tests; lists have no order here."""
    if isinstance(tree, tuple):
        return tree[0]
    found = {name: as_document(inner, f"{path}/{name}") for name, inner in tree.items()}
    if path == "/pets":
        return unordered(
            {"name": name, **item} if isinstance(item, dict) else item
            for name, item in found.items()
            if tree[name] != {}
        )
    return unordered(found.values()) if path == "/allergies" else found


def unordered(values: Iterable[Any]) -> Any:
    return sorted(values, key=lambda one: json.dumps(one, sort_keys=True))
