"""How the list of messages that a caller has differs from the thread that is stored.

A conversation is edited, regenerated, forked, trimmed, and sent again by clients that keep it themselves. The caller's list is
the truth about its branch: `turn.lua` compares, a turn shows that branch, and whoever saves the turn writes down what was left
behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from langchain_workingmem._redis.codec import is_ours_to_keep
from langchain_workingmem._text.copies import without_memory
from langchain_workingmem._text.said import words_of
from langchain_workingmem._text.unicode import is_utf8

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.effects import Argument

# list: a conversation as a client sends it. state: what a checkpointer holds. part: a part of a state, as a subgraph may have;
# it says nothing about the rest
Kind: TypeAlias = Literal["list", "state", "part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """What to write down about a caller's list when its turn is saved."""

    kind: Kind = "list"
    left: Sequence[str] = ()  # stored ids that the list has left behind
    back: Sequence[str] = ()  # stored ids that it takes up again
    claimed: Sequence[str] = ()  # stored ids that belong to the state from now on
    edited: Sequence[str] = ()  # ids whose words have changed
    aliases: Mapping[str, str] = field(default_factory=dict)  # ids in the list -> other ids under which they are stored
    anchor: str = ""  # stored id of the first message of the list
    question: str = ""  # stored id of the question
    hidden: frozenset[str] = frozenset()  # ids in the list that no model is shown: sent again, or refused by a provider

    @property
    def has_changes(self) -> bool:
        """Tell whether there is anything to write beside new messages."""
        return bool(self.left or self.back or self.claimed or self.edited or (self.aliases and self.kind == "state"))

    def without_changes(self) -> Branch:
        """Return what remains to be known of it when it is written down."""
        return Branch(
            kind=self.kind, aliases=self.aliases, anchor=self.anchor, question=self.question, hidden=self.hidden
        )

    def arguments(self, versions: Sequence[str]) -> list[Argument]:
        """Write it as `write.lua` reads it; the old version of each id in `versions` is kept."""
        aliases = self.aliases if self.kind == "state" else {}
        is_state = self.kind == "state"
        found: list[Argument] = ["s" if is_state else "t", (is_state and self.anchor) or self.question]
        for ids in (self.left, self.back, self.claimed, versions):
            found += [len(ids), *ids]
        return [*found, len(aliases), *(part for pair in aliases.items() for part in pair)]


NO_BRANCH: Sequence[Argument] = ("", "", 0, 0, 0, 0, 0)  # of a program that only adds messages


def entries(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages that are compared with the thread, in the user's own words."""
    return [without_memory(message) for message in messages if is_ours_to_keep(message)]


def entry_arguments(messages: Sequence[BaseMessage]) -> list[Argument]:
    """Write ids and words as the scripts read them; an id that cannot be stored is none."""
    found: list[Argument] = []
    for message in messages:
        id = message.id or ""
        found += [id if is_utf8(id) else "", words_of(message)]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The reply of `turn.lua` about a caller's list, by the ids in that list."""

    branch: Branch
    seqs: Mapping[str, int]  # of those that are stored
    uptos: Mapping[str, int]  # tokens said up to them
    left_seqs: frozenset[int]  # of what is left behind
    cut: int  # messages that a limit of tokens leaves in the store
    ends: float = inf  # sequence number of the question, where it is stored: what stands behind it is no history of it


def compared(reply: Sequence[Any], messages: Sequence[BaseMessage], kind: Kind) -> Comparison:
    """Read the reply; `messages` are the entries."""
    start, cut, left, left_seqs, back, claimed, stored, seqs, uptos, changed, refused = reply[:11]
    ids = [message.id or "" for message in messages]
    places = {id: seq for id, seq in zip(ids, seqs, strict=True) if seq >= 0}
    if not places:
        return Comparison(branch=Branch(kind=kind), seqs={}, uptos={}, left_seqs=frozenset(), cut=cut)
    names = {id: name.decode() for id, name in zip(ids, stored, strict=True) if name}
    asked = next((id for id, message in zip(ids[::-1], messages[::-1], strict=True) if message.type == "human"), "")
    resent = {id for id in ids[:start] if id in names}
    refusals = {id for id, flag in zip(ids, refused, strict=True) if flag and id != asked}
    branch = Branch(
        kind=kind,
        left=[id.decode() for id in left],
        back=[id.decode() for id in back],
        claimed=[id.decode() for id in claimed],
        edited=[id for id, flag in zip(ids, changed, strict=True) if flag and names.get(id) == id],
        aliases={id: name for id, name in names.items() if id and id != name},
        anchor=next((names[id] for id in ids[start:] if id in names), ""),
        question=names.get(asked, ""),
        hidden=frozenset(resent | refusals),
    )
    return Comparison(
        branch=branch,
        seqs=places,
        uptos={id: upto for id, upto in zip(ids, uptos, strict=True) if upto > 0},
        left_seqs=frozenset(left_seqs),
        cut=cut,
        ends=places.get(asked, inf),
    )
