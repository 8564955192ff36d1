"""The contexts that were made, for a program that collects them."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def note_made(context: MemoryContext, counting: Counting) -> None:
    """Give a context to those who collect, and let it know how its tokens are counted."""
    object.__setattr__(context, "counting", counting)
    for made in _collecting.get():
        made.append(context)
