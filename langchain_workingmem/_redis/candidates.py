"""The candidates of a search, read from its reply in columns.

A turn reads hundreds of candidates and shows a few of them; an object for each took a third of the client's time. What is odd here
was measured with 200: to join all keys and split them at once takes 40 us, one expression for each key 115; to read numbers of 13
characters takes half the time of 18.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import compress
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from langchain_workingmem._redis.codec import as_dict

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np

    Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
    Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# wm:vector:{thread}:seq:chunk:tokens~author; ids and names are encoded, so no other colon stands behind the prefix
_KEY = re.compile(rb"\{[^:}]*\}:\d+:o?\d+:\d+(?:~[^:]*)?")
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Candidates:
    """The chunks of messages that a search returned, the best first; each column holds a value of each, in bytes as in keys."""

    threads: list[bytes]  # encoded, in braces
    seqs: Places  # sequence numbers of the messages
    tokens: Sequence[int]  # of the whole messages
    authors: Sequence[bytes]  # "" without a name
    values: Numbers  # similarities or BM25 scores
    # numbers of the chunks; o and a number: an observation whose first source the message is
    chunks: list[bytes]
    times: Sequence[int] = ()  # when the messages were stored (microseconds), where the question names a time

    @classmethod
    def read(
        cls, keys: Sequence[bytes], values: Numbers, rows: Sequence[Any] = (), *, timed: bool = False
    ) -> tuple[Self, Sequence[Any]]:
        """Read the keys of vectors, and return their rows too; those of another application under the prefix are left out."""
        import numpy as np

        if not keys:
            return cls.none(), ()
        parts = b":".join(keys).split(b":")
        step = keys[0].count(b":") + 1
        threads, seqs, chunks, sizes = (parts[at::step] for at in range(step - _PARTS, step))
        try:
            numbers = np.fromiter(map(int, seqs), np.int64, len(keys))
            tokens, authors = zip(*map(_size, sizes), strict=True)
            are_ours = len(parts) == step * len(keys) and all(one[:1] + one[-1:] == b"{}" for one in {*threads})
        except ValueError:
            are_ours = False
        if not are_ours:
            ours = [bool(_KEY.fullmatch(key, key.find(b"{"))) for key in keys]
            return cls.read([*compress(keys, ours)], values[ours], [*compress(rows, ours)], timed=timed)
        times = [int(as_dict(row or {}).get(b"created_at", 0)) for row in rows] if timed else ()
        return cls(threads, numbers, tokens, authors, values, chunks, times), rows

    @classmethod
    def none(cls) -> Self:
        """Return an empty list."""
        import numpy as np

        return cls([], np.zeros(0, np.int64), (), (), np.zeros(0), [])

    def __len__(self) -> int:
        return len(self.threads)

    def __add__(self, other: Candidates) -> Candidates:
        import numpy as np

        return Candidates(
            self.threads + other.threads,
            np.concatenate((self.seqs, other.seqs)),
            (*self.tokens, *other.tokens),
            (*self.authors, *other.authors),
            np.concatenate((self.values, other.values)),
            self.chunks + other.chunks,
            (*self.times, *other.times),
        )

    @property
    def have_observations(self) -> bool:
        """Tell whether any of them is one."""
        return b"o" in b"".join(self.chunks)

    def messages(self) -> Iterable[tuple[bytes, int, int]]:
        """Return the message of each: thread, sequence number and tokens."""
        return zip((one[1:-1] for one in self.threads), self.seqs.tolist(), self.tokens, strict=True)

    def where(self, kept: Iterable[bool]) -> Candidates:
        """Return those that are kept."""
        kept = [*kept]
        names = ("threads", "tokens", "authors", "chunks", "times")
        columns: dict[str, Any] = {name: [*compress(getattr(self, name), kept)] for name in names}
        return replace(self, seqs=self.seqs[kept], values=self.values[kept], **columns)


@lru_cache(4096)  # most messages of a memory have one of some hundred sizes
def _size(size: bytes) -> tuple[int, bytes]:
    tokens, _, author = size.partition(b"~")
    return int(tokens), author


def numbers(ranks: list[Any]) -> Numbers:
    """Read scores, or sort keys ("#" and a number; None for a document that was deleted: not a number).

    11 digits tell distances of float32 apart; a number with an exponent needs all.
    """
    import numpy as np

    if None in ranks:
        ranks = [one or b"nan" for one in ranks]
    if ranks and isinstance(ranks[0], bytes):
        texts = b" ".join(ranks).replace(b"#", b"")
        ranks = texts.split() if b"e" in texts else [one[:13] for one in texts.split()]
    return np.fromiter(map(float, ranks), np.float64, len(ranks))


def similarities(distances: Numbers, metric: str) -> Numbers:
    """Convert Redis's distances to similarities from 0 to 1, or above 1 with `ip` for long vectors.

    cosine and ip: Redis returns 1 - product; negative similarities become 0, and what float16 lets a cosine exceed 1
    is cut off. l2: Redis returns the squared distance d, which becomes 1 / (1 + d). A zero vector has similarity 0.
    """
    import numpy as np

    found = 1 / (1 + distances) if metric == "l2" else 1 - distances
    return np.fmax(0.0, np.fmin(found, 1.0) if metric == "cosine" else found)  # 0 for what is not a number
