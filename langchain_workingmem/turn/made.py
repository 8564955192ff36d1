"""The contexts that were made: those that a program collects, and with what the last one of each thread began."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from langchain_workingmem._redis.state import Recent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.models import MemoryContext
    from langchain_workingmem.usage import Counting

_collecting: ContextVar[tuple[list[MemoryContext], ...]] = ContextVar("langchain_workingmem_contexts", default=())


@contextmanager
def collect_contexts() -> Iterator[list[MemoryContext]]:
    """Collect the contexts that models are shown inside the `with` block, in order, one for each call of a model.

    They are those of middleware, load nodes and `Memory.context`, also in the threads and tasks that LangGraph starts. Outside of
    such a block memory keeps none. `contexts[-1].usage` tells what the last one costs.
    """
    made: list[MemoryContext] = []
    token = _collecting.set((*_collecting.get(), made))
    try:
        yield made
    finally:
        _collecting.reset(token)


class LastSigns(Recent[str, "tuple[int, tuple[int, ...]]"]):
    """The number of the last context of each thread, and with what it began; nothing is kept before somebody asks."""

    is_asked = False

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count()

    def note(self, thread_id: str, number: int, own: tuple[int, ...]) -> None:
        """Keep those of a context, unless it is older than the one that is kept."""
        self.change(thread_id, lambda kept: kept if kept and kept[0] > number else (number, own))

    def shared(self, thread_id: str, number: int, before: tuple[int, ...] | None, own: tuple[int, ...]) -> int | None:
        """Note the signs of a context; return with how many of them the one before began."""
        from langchain_workingmem.usage.parts import alike

        self.is_asked = True
        self.note(thread_id, number, own)
        return None if before is None else alike(before, own)


def note_made(state: MemoryState, thread_id: str, context: MemoryContext, counting: Counting) -> None:
    """Give a context to those who collect, and let it know how its tokens are counted."""
    last = state.room(LastSigns)
    number, before = next(last.numbers), None
    if last.is_asked:
        from langchain_workingmem.usage.parts import signs

        _, before = last.get(thread_id) or (0, None)
        last.note(thread_id, number, signs(context.system, context.messages))
    counting.before = partial(last.shared, thread_id, number, before)
    object.__setattr__(context, "counting", counting)
    for made in _collecting.get():
        made.append(context)
