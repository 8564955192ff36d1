"""What the LangGraph store costs beside the same Redis commands sent with bare redis-py; README.md shows figures."""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING, Any

import redis
from common import Recorder, Slices, replay, row
from langgraph.store.base import GetOp, PutOp

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.store import RedisMemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable

DIMS = 384
USERS = 100
WORDS = ("user", "likes", "green", "tea", "honey", "reads", "long", "novels", "sea", "winter", "dog", "Nougat")


def text(number: int) -> str:
    return " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 16)) + f" {number}"


def value(number: int) -> dict[str, Any]:
    return {"text": text(number), "kind": "fact", "number": number}


def median_ms(call: Callable[[int], object], rounds: int) -> float:
    times = []
    for number in range(rounds):
        start = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    with EmbeddedRedis() as server:
        bare: Any = redis.Redis.from_url(server.url, protocol=2)
        tape: Any = Recorder(bare)
        store = RedisMemoryStore(client=tape, index={"dims": DIMS, "embed": Slices(DIMS), "fields": ["text"]})
        store.setup()
        before = bare.info("memory")["used_memory"]
        start = time.perf_counter()
        for first in range(0, options.items, 100):
            store.batch([PutOp(user(place), str(place), value(place)) for place in range(first, first + 100)])
            tape.trips.clear()
        seconds = time.perf_counter() - start
        size = (bare.info("memory")["used_memory"] - before) / options.items
        print(
            f"{options.items} items of {USERS} users, {DIMS} dims: {options.items / seconds:,.0f} puts/s, {size:,.0f} bytes each"
        )
        rows: dict[str, Callable[[int], object]] = {
            "put": lambda n: store.put(user(n), str(n), value(n + 1)),
            "get": lambda n: store.get(user(n), str(n)),
            "batch of 100 puts": lambda n: store.batch([PutOp(user(i), str(i), value(i + n)) for i in range(100)]),
            "batch of 100 gets": lambda n: store.batch([GetOp(user(i), str(i + n)) for i in range(100)]),
            "search by vector": lambda n: store.search(user(n), query=text(n + 7)),
            "search by filter": lambda n: store.search(user(n), filter={"number": n}),
            "search by vector and filter": lambda n: store.search(user(n), query=text(n + 8), filter={"kind": "fact"}),
            "search with a comparison": lambda n: store.search(user(n), filter={"number": {"$lt": 5000}}),
            "list_namespaces": lambda n: store.list_namespaces(prefix=("users",), offset=n % 10),
        }
        print(row("p50 in milliseconds", "ours", "bare", "ratio"), row("---", "--:", "--:", "--:"), sep="\n")
        for name, call in rows.items():
            rounds = options.rounds // 10 if name.startswith(("batch", "list")) else options.rounds
            tape.trips.clear()
            ours = median_ms(call, rounds)
            sent = tape.trips[:]
            per_call = len(sent) // rounds
            trips = [sent[place * per_call : (place + 1) * per_call] for place in range(rounds)]
            floor = median_ms(lambda n, trips=trips: replay(bare, trips[n]), rounds)  # type: ignore[misc]
            print(row(name, f"{ours:.2f}", f"{floor:.2f}", f"{ours / floor:.2f}"))
        bare.close()


def user(number: int) -> tuple[str, str]:
    return ("users", f"user{number % USERS}")


if __name__ == "__main__":
    main()
