"""Pictures of records for notebooks and terminals, and the bar of what takes long."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(what: str, unit: str, *, shown: bool) -> Iterator[Callable[[int, int], object]]:
    """Show a bar, and give a function that takes how much of how much is done."""
    from tqdm.auto import tqdm

    with tqdm(desc=what, unit=f" {unit}", disable=not shown) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
