"""What a turn costs beside a lean client of bare redis-py; docs/benchmarks.md describes the method.

python benchmarks/turn.py                                            # 20,000 messages, about four minutes
python benchmarks/turn.py --add before=../other --rows ctx_hyb,save  # another checkout beside this one
python benchmarks/turn.py --bar ctx_sem=1.8,save=1.6                 # fails where a ratio is surely above
python benchmarks/turn.py --profile /tmp                             # NAME.prof for each contestant, by cProfile
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from common import environment, row
from contest import Shape, Team, contest, ratio

from langchain_workingmem.embedded import EmbeddedRedis

ROWS = "ctx_sem,ctx_hyb,ctx_def,search_sem,search_hyb,save,bulk,actx_hyb"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("users", 20), ("threads", 5), ("each", 200), ("batches", 40), ("calls", 20)):
        parser.add_argument(f"--{name}", type=int, default=default, help="%(default)s")
    parser.add_argument("--rows", default=ROWS, help="%(default)s")
    parser.add_argument("--add", action="append", default=[], metavar="NAME=PATH", help="another checkout")
    parser.add_argument("--bar", default="", metavar="ROW=RATIO,...", help="fail where the ratio is surely above")
    parser.add_argument("--profile", metavar="FOLDER")
    args = parser.parse_args()
    bars = dict(one.split("=") for one in args.bar.split(",") if one)
    others = dict(one.split("=", 1) for one in args.add)
    shape = Shape(args.users, args.threads, args.each)
    with EmbeddedRedis() as server:
        print(
            f"{environment(server.url)}; {shape.messages:,} messages of {shape.users} users, {shape.threads} threads each"
        )
    with ExitStack() as stack:
        profiles = {name: f"{args.profile}/{name}.prof" if args.profile else "" for name in ("ours", *others)}
        made = {"floor": Team("floor", shape), "ours": Team("package", shape, profile=profiles["ours"])}
        made |= {name: Team("package", shape, Path(path), profiles[name]) for name, path in others.items()}
        teams = {name: stack.enter_context(team) for name, team in made.items()}
        print("bytes a message:", ", ".join(f"{name} {team.bytes:,.0f}" for name, team in teams.items()), "\n")
        costs = contest(teams, args.rows.split(","), args.batches, args.calls)
    columns = (f"{name} / ours" for name in others)
    print(row("milliseconds of processor time", "floor", "ours", "client", "server", "ours / floor", *columns))
    print(row("---", *["--:"] * (5 + len(others))))
    failed = []
    for name, of in costs.items():
        found, (client, server) = ratio(of["ours"], of["floor"]), map(median, zip(*of["ours"], strict=True))
        both = (median(one.both for one in of[team]) for team in ("floor", "ours"))
        beside = (ratio(of[other], of["ours"]) for other in others)
        print(row(name, *(f"{time:.2f}" for time in (*both, client, server)), found, *beside))
        if found.low > float(bars.get(name, "inf")):
            failed.append(f"{name}: {found} is above {bars[name]}")
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
