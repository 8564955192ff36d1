"""One question to a keeper: the document that it is shown, how its answer is checked, and how that is written."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from langchain_core.messages import FunctionMessage, ToolMessage

from langchain_workingmem._redis.codec import to_micros
from langchain_workingmem._text.names import is_memory_tool
from langchain_workingmem.errors import WorkingMemoryValidationError
from langchain_workingmem.keeping.checking import Checked, Given, check
from langchain_workingmem.keeping.claims import Source
from langchain_workingmem.keeping.keeper.answers import Answered, with_paths
from langchain_workingmem.keeping.keeper.prompts import keeper_rules, shown_document
from langchain_workingmem.keeping.store import change_kept
from langchain_workingmem.observations import BadAnswer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from zoneinfo import ZoneInfo

    from langchain_core.messages import BaseMessage

    from langchain_workingmem._engine.plan import Plan
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem._text.ranges import Ranges
    from langchain_workingmem.keeping.store import Kept, Made
    from langchain_workingmem.models import StoredMessage
    from langchain_workingmem.observations import Opened
    from langchain_workingmem.working_memory import ScopeKey

_EMPTIES = (
    "These operations take away more than half of what the document holds. Take away only what a message says is wrong or holds "
    "no longer. If all of it is so, give the same operations again."
)
_log = logging.getLogger("langchain_workingmem")


@dataclass
class Question:
    """A question about messages, and the document that the model is shown with them."""

    state: MemoryState
    where: ScopeKey
    kept: Kept
    opened: Sequence[Opened]  # the messages as they were read
    rows: Sequence[StoredMessage]  # as the model is shown them, numbered from 1
    zone: ZoneInfo | None = None
    taken: int = 0  # operations of the answer that was written
    left_out: int = 0
    _refused: str = field(default="", init=False)  # what an answer took away that was asked for again

    @cached_property
    def _shown(self) -> tuple[str, dict[int, str]]:
        return shown_document(self.kept.form, self.kept.values, self.kept.state.text, self.zone)

    @property
    def document(self) -> str:
        """Return the document as the model is shown it."""
        return self._shown[0]

    def rules(self) -> str:
        """Return the rules for the model."""
        options = self.state.remembering
        return keeper_rules(self.kept.form, options.scope, options.instructions, options.trust)

    def accepted(self, answered: Answered, *, is_last: bool) -> Answered:
        """Return an answer, with the path or line for each number of a value.

        One that takes away most of the document is a `BadAnswer` the first time; another answer that does the same is taken. At
        the last attempt it is taken without what takes something away.
        """
        found = answered._replace(operations=with_paths(answered.operations, self._shown[1]))
        emptied = self._check(found, self.kept).emptied
        if not emptied or emptied == self._refused:
            return found
        _log.warning("an answer would take away most of working memory %r, and is asked for again", self.where.key)
        if not is_last:
            self._refused = emptied
            raise BadAnswer(_EMPTIES)
        stays = [one for one in found.operations if one.get("op") in {"set", "add"}]
        left = Answered(stays, found.left_out + len(found.operations) - len(stays))
        if self._check(left, self.kept).emptied:
            left = Answered([], found.left_out + len(found.operations))
        return left

    def write(self, answered: Answered, cursor: tuple[str, int], reread: Ranges) -> Plan[None]:
        """Write what holds of an answer in one step, as a revision. Three round trips."""

        def made(kept: Kept) -> Made:
            checked = self._check(answered, kept)
            self.left_out = answered.left_out + sum(checked.left_out.values())
            self.taken = len(answered.operations) - sum(checked.left_out.values())
            # what was set when the model was asked, and was forgotten meanwhile: its path may hold words of what is deleted
            forgotten = self.kept.values.set_paths - kept.values.set_paths
            claims = [one for one in checked.claims if one.is_set or one.path not in forgotten]
            return claims, checked.layout

        seen = {(one.row.thread_id, one.row.message.id or ""): one.digest for one in self.opened}
        try:
            yield from change_kept(
                self.state, self.where, made, "keeper", cursor=cursor, seen=seen, reread=reread, was=self.kept
            )
        except WorkingMemoryValidationError as error:  # with what others have written meanwhile
            _log.warning("nothing of an answer is written into working memory %r: %s", self.where.key, error)
            self.taken, self.left_out = 0, answered.left_out + len(answered.operations)
            yield from change_kept(
                self.state, self.where, lambda _: ((), None), "keeper", cursor=cursor, reread=reread, was=self.kept
            )

    def _check(self, answered: Answered, kept: Kept) -> Checked:
        options = self.state.remembering
        return check(
            kept.form,
            kept.values,
            answered.operations,
            self._given,
            recorded_at=kept.now,
            trust=options.trust,
            max_bytes=options.max_bytes,
        )

    @cached_property
    def _given(self) -> dict[int, Given]:
        tools: dict[Any, str] = {
            call["id"]: call["name"] for row in self.rows for call in getattr(row.message, "tool_calls", ())
        }
        return {number: _given(row, tools) for number, row in enumerate(self.rows, 1)}


def _given(row: StoredMessage, tools: dict[Any, str]) -> Given:
    source = Source(row.thread_id, row.message.id or "", row.seq, to_micros(row.stored_at))
    return Given(source, _author(row.message, tools))


def _author(message: BaseMessage, tools: dict[Any, str]) -> str:
    """Return whose words a message holds: what a tool of memory returns was said elsewhere, so it is no source."""
    if isinstance(message, ToolMessage | FunctionMessage):
        name = message.name or tools.get(getattr(message, "tool_call_id", ""))
        return "memory" if is_memory_tool(name) else "tool"
    role = getattr(message, "role", "")  # of a ChatMessage
    return "human" if message.type == "human" or role in {"user", "human"} else "ai"
