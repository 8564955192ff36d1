"""How cost grows with the messages of a user, with users, with the length of threads, beside the floor of turn.py.

    python benchmarks/scaling.py --out figures/scaling.json        # up to 200,000 messages: 2 GB, about 15 minutes
    python benchmarks/scaling.py --quick --bar 1.3                 # about a minute; fails where ours surely grows faster

Every point has private servers of its own. A cell is the processor time of a call: ours (of it, that of the client) / the floor's.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from common import environment, row
from contest import Shape, Team, contest, ratio

from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from contest import Costs

NAMES = {
    "search_sem": "recall, semantic",
    "search_hyb": "recall, hybrid",
    "ctx_sem": "context, semantic",
    "ctx_hyb": "context, hybrid",
    "ctx_last": "context without recall",
    "save": "save_turn",
}
RECALL = ("search_sem", "search_hyb", "ctx_sem", "ctx_hyb", "save")
OF_A_USER = "messages of one user"


def curves(most: int) -> dict[str, tuple[Sequence[str], dict[int, Shape]]]:
    """Give the axes, and for each the operations and the shapes of its points, for users of up to `most` messages."""
    powers = [10**power for power in range(9) if 10**power <= most]
    return {
        OF_A_USER: (RECALL, {n: Shape(1, max(1, n // 100), min(n, 100)) for n in powers}),
        "users of 20 messages each": (RECALL, {n: Shape(n, 1, 20) for n in powers if n <= most // 10}),
        f"thread length of a user with {powers[-1]:,} messages": (
            ("ctx_last", "ctx_sem", "save"),
            {n: Shape(1, powers[-1] // n, n) for n in powers if n >= 100},
        ),
    }


def measure(shape: Shape, rows: Sequence[str], batches: int, calls: int) -> tuple[Costs, dict[str, Any]]:
    """Return the costs, and their medians."""
    with ExitStack() as stack:
        made = {"floor": Team("floor", shape), "ours": Team("package", shape)}
        teams = {name: stack.enter_context(team) for name, team in made.items()}
        costs = contest(teams, rows, batches, calls)
    times = {
        NAMES[name]: {
            "ours": median(one.both for one in of["ours"]),
            "client": median(one.client for one in of["ours"]),
            "floor": median(one.both for one in of["floor"]),
        }
        for name, of in costs.items()
    }
    return costs, {"bytes": round(teams["ours"].bytes), "milliseconds": times}


def table(axis: str, rows: Sequence[str], points: dict[int, Any]) -> Iterator[str]:
    yield row(axis, *(NAMES[name] for name in rows), "bytes a message")
    yield row(*["--:"] * (2 + len(rows)))
    for value, one in points.items():
        cells = ("{ours:.2f} ({client:.2f}) / {floor:.2f}".format(**times) for times in one["milliseconds"].values())
        yield row(f"{value:,}", *cells, f"{one['bytes']:,}")


def ends(axis: str, values: Sequence[int]) -> tuple[int, int]:
    """Choose the two points that are compared: users of whom recall looks at as many candidates."""
    compared = [value for value in values if value and (axis != OF_A_USER or value >= 1_000)] or values
    return compared[0], min(compared[-1], 10_000) if axis == OF_A_USER else compared[-1]


def too_fast(axis: str, points: dict[int, Any]) -> Iterator[str]:
    """Name what grew by more than that over which it grows."""
    for small, large in pairwise(points):
        for name, times in points[large]["milliseconds"].items():
            grown = times["ours"] / points[small]["milliseconds"][name]["ours"]
            if small and grown > large / small:
                yield f"{axis}: {name} grew {grown:.1f} times from {small:,} to {large:,}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default in (("most", 100_000), ("batches", 20), ("calls", 20)):
        parser.add_argument(f"--{option}", type=int, default=default, help="%(default)s")
    parser.add_argument("--axis", default="", help="only those whose name begins with this")
    parser.add_argument("--quick", action="store_true", help="--most 10000 --batches 8 --calls 10")
    parser.add_argument(
        "--bar", type=float, default=inf, help="fail where ours surely grew so much faster than the floor"
    )
    parser.add_argument("--out", type=Path, help="write the figures as JSON, for plots.py")
    args = parser.parse_args()
    if args.quick:
        args.most, args.batches, args.calls = 10_000, 8, 10
    with EmbeddedRedis() as server:
        figures: dict[str, Any] = {"environment": environment(server.url), "curves": {}}
    print(f"{figures['environment']}; milliseconds of processor time: ours (client) / floor", flush=True)
    failed: list[str] = []
    for axis, (rows, shapes) in curves(args.most).items():
        if not axis.startswith(args.axis):
            continue
        measured = {n: measure(shape, rows, args.batches, args.calls) for n, shape in shapes.items()}
        points = figures["curves"][axis] = {n: one for n, (_, one) in measured.items()}
        failed += too_fast(axis, points)
        small, large = ends(axis, [*points])
        grown = {}
        for name in rows:
            before, after = (
                (costs[name]["ours"], costs[name]["floor"]) for costs in (measured[small][0], measured[large][0])
            )
            grown[name] = ratio(*after, since=before)
            if grown[name].low > args.bar:
                failed.append(f"{axis}: {NAMES[name]} grew {grown[name]} times as much as the floor")
        print("", *table(axis, rows, points), sep="\n")
        print(row(f"{small:,} to {large:,}, ours / floor", *grown.values(), ""), flush=True)
        if args.out:
            args.out.write_text(json.dumps(figures, indent=1) + "\n")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
