"""How cost grows with the messages of a user, with users and with threads; docs/benchmarks.md shows the curves.

    python benchmarks/scaling.py --out figures/scaling.json        # up to a million messages: 5 GB, about 10 minutes
    python benchmarks/scaling.py --most 10000 --rounds 20          # quick

Every point has a private server of its own, filled through `history.append`, and then asks and saves as turn.py does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import BATCH, HYBRID, SEMANTIC, Case, Slices, Target, Words, alternate, environment, row

from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator

OPERATIONS = ("recall, semantic", "recall, hybrid", "context, semantic", "context, hybrid", "save_turn")
GIB = 2**30


@dataclass(frozen=True)
class Shape:
    """What a server is filled with."""

    users: int
    threads: int  # of each user
    each: int  # messages of a thread

    @property
    def messages(self) -> int:
        return self.users * self.threads * self.each

    def ids(self, user: int, thread: int) -> dict[str, Any]:
        return {"thread_id": f"thread-{user}-{thread}", "resource_id": f"user-{user}"}

    def pick(self) -> dict[str, Any]:
        return self.ids(random.randrange(self.users), random.randrange(self.threads))


def curves(most: int) -> dict[str, dict[int, Shape]]:
    """Give the axes, and on each the shapes of its points: powers of ten up to `most` messages."""
    powers = [10**power for power in range(9) if 10**power <= most]
    thousands = [count for count in powers if count >= 1000]
    total = min(10_000, powers[-1])
    return {
        "messages of one user": {count: Shape(1, count // 100, 100) for count in thousands},
        "users with 1,000 messages each": {count // 1000: Shape(count // 1000, 10, 100) for count in thousands},
        f"threads of one user with {total:,} messages": {
            count: Shape(1, count, total // count) for count in powers if count <= total
        },
    }


async def measure(shape: Shape, model: Slices, words: Words, rounds: int) -> dict[str, Any]:
    """Fill a server, and time every operation beside its bare commands."""
    with EmbeddedRedis() as server:
        target, hybrid = (Target(server.url, model, words, options) for options in (SEMANTIC, HYBRID))
        before, start = target.used_memory(), time.perf_counter()
        for user, thread in product(range(shape.users), range(shape.threads)):
            for at in range(0, shape.each, BATCH):
                messages = words.messages(min(BATCH, shape.each - at))
                target.memory.history.append(messages, **shape.ids(user, thread))
        seconds, used = time.perf_counter() - start, target.used_memory() - before
        pairs = (
            lambda: target.search(shape.pick()["resource_id"]),
            lambda: hybrid.search(shape.pick()["resource_id"]),
            lambda: target.context(**shape.pick()),
            lambda: hybrid.context(**shape.pick()),
            lambda: target.append(2, **shape.pick()),
        )
        cases = [Case(name, pair) for name, pair in zip(OPERATIONS, pairs, strict=True)]
        warm_up = max(2, rounds // 10)
        await alternate(cases, rounds, warm_up)
        return {
            "messages": shape.messages,
            "bytes": round(used / shape.messages),
            "per_second": round(shape.messages / seconds),
            "milliseconds": {case.name: dict(zip(("ours", "bare"), case.p50s(warm_up), strict=True)) for case in cases},
        }


def table(axis: str, points: dict[str, Any]) -> Iterator[str]:
    """Show medians in milliseconds, ours / bare."""
    yield row(axis, *OPERATIONS, "bytes a message", "messages/s in")
    yield row(*["--:"] * (3 + len(OPERATIONS)))
    for value, point in points.items():
        both = (point["milliseconds"][name] for name in OPERATIONS)
        cells = (f"{times['ours']:.2f} / {times['bare']:.2f}" for times in both)
        yield row(f"{int(value):,}", *cells, f"{point['bytes']:,}", f"{point['per_second']:,}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="messages of the largest point (%(default)s)")
    parser.add_argument("--rounds", type=int, default=200, help="calls of each operation at each point")
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--gib", type=float, default=6, help="leave out points that need more memory in Redis")
    parser.add_argument("--out", type=Path, help="write the figures as JSON, for plots.py")
    args = parser.parse_args()
    random.seed(3)
    model, words = Slices(args.dims), Words()
    with EmbeddedRedis() as server:
        figures: dict[str, Any] = {"environment": environment(server.url), "dims": args.dims, "curves": {}}
    print(f"{figures['environment']}, {args.dims} dims; p50 in milliseconds, ours / bare", flush=True)
    for axis, shapes in curves(args.most).items():
        points: dict[str, Any] = {}
        figures["curves"][axis] = points
        for value, shape in shapes.items():
            expected = shape.messages * (list(points.values())[-1]["bytes"] if points else 0)
            if expected > args.gib * GIB:
                print(f"{axis}: {value:,} would need {expected / GIB:.1f} GiB, left out")
                continue
            points[str(value)] = asyncio.run(measure(shape, model, words, args.rounds))
        print("", *table(axis, points), sep="\n", flush=True)
        if args.out:
            args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
