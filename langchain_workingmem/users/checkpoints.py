"""The checkpoints of a LangGraph checkpointer, which go with the threads of a deleted resource."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from langgraph.checkpoint.base import BaseCheckpointSaver

from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_workingmem.reports import CheckpointsOutcome

_METHODS = ("delete_thread", "adelete_thread")


class Checkpoints:
    """What one deletion does with checkpoints; `OptionError` if the checkpointer deletes only sync, or only async."""

    def __init__(self, saver: BaseCheckpointSaver[str], *, is_async: bool = False) -> None:
        if not isinstance(saver, BaseCheckpointSaver):
            raise wrong_type(saver, "checkpointer", "pass the checkpointer of your graph, such as InMemorySaver()")
        has = [getattr(type(saver), name) is not getattr(BaseCheckpointSaver, name) for name in _METHODS]
        if has[not is_async] and not has[is_async]:
            other = "call users.delete() in a thread" if is_async else "await users.adelete() in async code"
            raise OptionError(f"{type(saver).__name__} has no {_METHODS[is_async]}()", remedy=other)
        self.outcome: CheckpointsOutcome = "deleted"
        self._saver = saver
        self._is_async = is_async

    def delete(self, thread_ids: Sequence[str], note: str) -> Iterator[None] | AsyncIterator[None]:
        """Delete the checkpoints of one thread at each step; `note` is for errors of the checkpointer."""
        return self._adelete(thread_ids, note) if self._is_async else self._delete(thread_ids, note)

    def _delete(self, thread_ids: Sequence[str], note: str) -> Iterator[None]:
        with self._watched(note):
            for id in thread_ids:
                self._saver.delete_thread(id)
                yield

    async def _adelete(self, thread_ids: Sequence[str], note: str) -> AsyncIterator[None]:
        with self._watched(note):
            for id in thread_ids:
                await self._saver.adelete_thread(id)
                yield

    @contextmanager
    def _watched(self, note: str) -> Iterator[None]:
        try:
            yield
        except NotImplementedError:
            self.outcome = "not implemented"
        except Exception as error:
            error.add_note(note)
            raise
