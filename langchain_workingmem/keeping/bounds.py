"""How much history of a document is kept. Pure functions; what holds now never depends on what they leave out."""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from langchain_workingmem.keeping.timeline import Said, Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langchain_workingmem.keeping.claims import Claim

LAST = 3  # of the claims that repeat a value these are kept, and the first
PATHS = 10  # times as many paths that no longer hold are kept as entries of one


def bounded(claims: Mapping[str, Claim], keep: int) -> dict[str, Claim]:
    """Return the claims with at most `keep` entries of history for each path.

    Of the claims that repeat a value the first and the last three stay. Of the paths where nothing holds any more, ten times `keep`
    stay, those that ended last. Fewer than two entries cannot be kept: the last value tells that what a removal ended is an object.
    """
    keep = max(keep, 2)
    timeline = Timeline(claims.values())
    left_out = {one.claim.id for some in timeline.said.values() if len(some) > keep for one in _too_old(some, keep)}
    if len(timeline.said) > PATHS * keep:
        left_out |= {one.claim.id for one in _long_gone(timeline, PATHS * keep)}
    return {name: claim for name, claim in claims.items() if name not in left_out} if left_out else dict(claims)


def _too_old(some: list[Said], keep: int) -> Iterator[Said]:
    runs = [[*run] for _, run in groupby(some, attrgetter("is_set", "text"))]
    for run in runs[:-keep]:
        yield from run
    for run in runs[-keep:]:
        yield from run[1:-LAST]


def _long_gone(timeline: Timeline, most: int) -> Iterator[Said]:
    gone: list[tuple[Said, bool, str]] = []
    for path, some in timeline.said.items():
        last = next(timeline.spans(path), None)
        if not last or not last.is_set:
            end = max(last.first, some[-1]) if last else some[-1]
            gone.append((end, end.path == path, path))  # what ended others goes after them, else they would be back
    for *_, path in sorted(gone)[:-most]:
        yield from timeline.said[path]
