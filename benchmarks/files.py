"""What files cost beside the least that bare redis-py can do: HKEYS of the same names, and a script that keeps a revision.

docs/benchmarks.md describes the method. Needs Linux.
"""

from __future__ import annotations

import argparse
import time
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Any

import redis
from common import environment, row
from contest import Cost, processor_time, ratio

from langchain_workingmem import FileOptions, Memory
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable

ANN: dict[str, Any] = {"resource_id": "ann"}
WORK = "/work/notes"  # the directory of all files
LINE = "The quick brown fox jumps over the lazy dog, line {} of this file.\n"
# Checks the owner, keeps a revision, and stores a text.
FLOOR = """
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return redis.error_reply('NOTYOURS') end
local old, revision = redis.call('HGET', KEYS[2], ARGV[2]), redis.call('HINCRBY', KEYS[3], ARGV[2], 1)
redis.call('HSET', KEYS[2], ARGV[2] .. '\\0' .. revision, old)
redis.call('HDEL', KEYS[2], ARGV[2] .. '\\0' .. (revision - 10))
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return revision
"""


def main() -> None:
    """Print a row per operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=2_000, help="characters of a text that is written")
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--calls", type=int, default=200, help="writes of a batch; of listings a hundredth")
    options = parser.parse_args()
    with EmbeddedRedis() as server, Memory(server.url, files=FileOptions(max_files=10**6)) as memory:
        bare: Any = redis.Redis.from_url(server.url)
        pid = int(bare.info("server")["process_id"])
        files, new = memory.files, count()
        for number in range(options.files):
            files.write(f"{WORK}/{number % 100:02}-{number:05}.md", f"note {number}\n", by="agent", **ANN)
        members = bare.zrange(Keys().files_of_resource("ann")[1], 0, -1)
        bare.hset("names", mapping=dict.fromkeys((member.partition(b"\0")[0] for member in members), b""))
        bare.hset("answer", mapping=dict.fromkeys(members, b""))
        bare.hset("owner", "owner", "ann")
        sha, text = bare.script_load(FLOOR), LINE.format(0) * (options.size // len(LINE))
        bare.hset("texts", "/plan.md", text)

        def write_bare() -> None:
            bare.evalsha(sha, 3, "owner", "texts", "revisions", "ann", "/plan.md", f"{text}{next(new)}")

        calls: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
            "list, beside HKEYS of the paths": (lambda: files.list(WORK, **ANN), lambda: bare.hkeys("names"), 2),
            "list, beside HKEYS of the same bytes": (lambda: files.list(WORK, **ANN), lambda: bare.hkeys("answer"), 2),
            "glob, beside HKEYS of the paths": (
                lambda: files.glob(f"{WORK}/**/*.md", **ANN),
                lambda: bare.hkeys("names"),
                2,
            ),
            "glob, beside HKEYS of the same bytes": (
                lambda: files.glob(f"{WORK}/**/*.md", **ANN),
                lambda: bare.hkeys("answer"),
                2,
            ),
            "write, beside a script": (
                lambda: files.write("/plan.md", f"{text}{next(new)}", **ANN),
                write_bare,
                options.calls,
            ),
        }
        print(environment(server.url))
        print(row("milliseconds of processor time", "floor", "ours", "client", "server", "ours / floor"))
        print(row("---", "--:", "--:", "--:", "--:", "--:"))
        for name, (ours, floor, number) in calls.items():
            costs: tuple[list[Cost], list[Cost]] = ([], [])
            for batch in range(options.batches + 1):
                for side in (0, 1) if batch % 2 else (1, 0):
                    cost = measure((ours, floor)[side], number, pid)
                    if batch:
                        costs[side].append(cost)
            mine, least = (Cost(*map(median, zip(*side, strict=True))) for side in costs)
            figures = (f"{one:.3f}" for one in (least.both, mine.both, mine.client, mine.server))
            print(row(name, *figures, ratio(*costs)))


def measure(call: Callable[[], object], number: int, pid: int) -> Cost:
    """Return what a call costs, of so many."""
    server, client = processor_time(pid), time.process_time()
    for _ in range(number):
        call()
    client = time.process_time() - client
    return Cost(client * 1000 / number, (processor_time(pid) - server) / number)


if __name__ == "__main__":
    main()
