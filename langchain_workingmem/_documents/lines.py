"""Line differences of two texts."""

from __future__ import annotations

from difflib import SequenceMatcher, unified_diff
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Lines = partial(SequenceMatcher, None)


def unified(before: Sequence[str], after: Sequence[str], context: int = 3) -> Iterator[str]:
    """Yield the lines of a unified diff, without its header."""
    return islice(unified_diff(before, after, n=context, lineterm=""), 2, None)
