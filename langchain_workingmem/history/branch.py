"""How the caller's list of messages differs from the stored thread.

Clients edit, regenerate, fork, trim and resend conversations. `turn.lua` compares the caller's list with the thread, the turn
shows the branch of the list, and saving the turn supersedes what the list left behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_workingmem._engine.plan import Argument
    from langchain_workingmem._redis.codec import Draft

# list: a conversation as a client sends it. state: all messages of a checkpointer. part: some of them, as in a subgraph;
# what is missing there means nothing; substate: a part of a checkpointer's state
Kind: TypeAlias = Literal["list", "state", "part", "substate"]
NO_CHANGES: Sequence[Argument] = (0, 0, 0, 0, 0)
NO_BRANCH: Sequence[Argument] = ("", "", *NO_CHANGES)  # for a program that only adds messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """What to write about the caller's list when its turn is saved."""

    kind: Kind = "list"
    left: Sequence[str] = ()  # stored ids that the list has left behind
    back: Sequence[str] = ()  # stored ids that were superseded, and that the list contains again
    claimed: Sequence[str] = ()  # stored ids that belong to the checkpointed state from now on
    edited: Sequence[str] = ()  # ids whose words have changed
    # ids of a state whose answers stay: other middleware has changed their words, no user
    redacted: frozenset[str] = frozenset()
    unseen: Sequence[str] = ()  # ids of questions that no context has compared with the thread
    aliases: Mapping[str, str] = field(default_factory=dict)  # ids in the list -> other ids under which they are stored
    anchor: str = ""  # stored id of the first message of the list
    question: str = ""  # stored id of the question
    removed: str = ""  # positions of messages that memory has taken out of the list, because a log stands for them
    hidden: frozenset[str] = frozenset()  # ids in the list that no model is shown: sent again, or refused by a provider
    seen: int | None = None  # the next sequence number of the thread when its context was read; None: unknown
    saved: str | None = None  # the words of the question, once a turn was saved with it

    @property
    def has_changes(self) -> bool:
        """Tell whether there is anything to write beside new messages."""
        return bool(self.left or self.back or self.claimed or self.edited or (self.aliases and self.kind == "state"))

    def without_changes(self) -> Branch:
        """Return what is still needed after the changes are saved."""
        return replace(self, left=(), back=(), claimed=(), edited=())

    def arguments(self, drafts: Sequence[Draft]) -> list[Argument]:
        """Return the arguments of `write.lua`. A question that was edited under its id keeps its older version."""
        is_state = self.kind == "state"
        source = "s" if is_state else "t" if self.seen is None else f"t{self.seen}"
        start: list[Argument] = [source, (is_state and self.anchor) or self.question]
        if not (self.has_changes or self.unseen):
            return [*start, *NO_CHANGES]
        aliases = self.aliases if is_state else {}
        questions = {*self.edited, *self.unseen} - self.redacted
        versions = [draft.id for draft in drafts if draft.id in questions and draft.words.startswith("q")]
        found = start
        for ids in (self.left, self.back, self.claimed, versions):
            found += [len(ids), *ids]
        return [*found, len(aliases), *(part for pair in aliases.items() for part in pair)]
