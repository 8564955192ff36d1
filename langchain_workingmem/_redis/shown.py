"""What models have been shown: the newest of each thread, as far as this process knows it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from langchain_workingmem._redis.recent import Recent
from langchain_workingmem._text.unicode import is_utf8

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class ShownDocument:
    """A working memory as a model knows it.

    The calls of one answer know only what stood in the prompt. What a tool says they learn at the next step of their graph.
    """

    text: str
    step: Any = None  # of the graph, in which the model learns `later`
    later: str | None = None

    def at(self, step: Any) -> str:
        """Return what the model knew when it made the calls of a step."""
        return self.text if self.later is None or step == self.step else self.later


@dataclass(frozen=True, slots=True)
class ShownMessages:
    """The messages that a model was shown."""

    ids: frozenset[str]
    question: str  # the text that is being answered


@dataclass(slots=True, kw_only=True)
class ShownToModel:
    """What models have been shown; safe to use from many threads."""

    _shown: Recent[tuple[str | None, str], ShownDocument] = field(default_factory=Recent, repr=False)
    _messages: Recent[str | None, ShownMessages] = field(default_factory=Recent, repr=False)

    def note_shown_document(self, thread_id: str | None, memory_key: str, text: str, step: Any = None) -> None:
        """Note which text of a working memory a model was shown; with a step of a graph, it counts behind that step."""

        def make(before: ShownDocument | None) -> ShownDocument:
            if step is None:
                return ShownDocument(text)
            return ShownDocument(text if before is None else before.at(step), step, text)

        self._shown.change((thread_id, memory_key), make)

    def shown_document(self, thread_id: str | None, memory_key: str, step: Any = None) -> str | None:
        """Return which text of a working memory a model was shown before this step, None when nobody knows."""
        found = self._shown.get((thread_id, memory_key))
        return None if found is None else found.at(step)

    def document_after_step(self, thread_id: str | None, memory_key: str) -> str | None:
        """Return the text that a model knows when the present step is over, None when nobody knows."""
        found = self._shown.get((thread_id, memory_key))
        return None if found is None else found.at(object())

    def note_shown_messages(self, thread_id: str, message_ids: Iterable[str | None], question_text: str) -> None:
        """Note the messages that a model is shown, and the text of the question that it answers."""
        ids = _stored_as(message_ids)
        self._messages.put(thread_id, ShownMessages(ids, question_text.strip()))

    def add_shown_messages(self, thread_id: str, message_ids: Iterable[str | None]) -> None:
        """Note messages that were said since; nothing happens where nothing was noted."""
        ids = _stored_as(message_ids)
        self._messages.change(thread_id, lambda known: known and replace(known, ids=known.ids | ids))

    def shown_messages(self, thread_id: str | None) -> ShownMessages | None:
        """Return the messages that a model has in sight, None when nobody knows."""
        return self._messages.get(thread_id)

    def forget_shown_messages(self, thread_id: str | None) -> None:
        """Forget which messages were in sight."""
        self._messages.pop(thread_id)


def _stored_as(message_ids: Iterable[str | None]) -> frozenset[str]:
    return frozenset(id for id in message_ids if id and is_utf8(id))  # no others can be stored
