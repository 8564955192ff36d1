"""How long each page of the studio takes, beside a request that Redis only answers with PING.

    python benchmarks/studio.py                     # 100,000 messages of one user, two minutes
    python benchmarks/studio.py --messages 5000     # quick

The studio is a process of its own, as `workingmem studio` starts it, and answers one request at a time.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import httpx
import redis
from common import BATCH, Slices, Words, environment

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "STUDIO_BENCHMARK_URL"
DIMENSIONS = 384
USER, LONG = "maya", "long"  # the user's longest thread holds a fifth of the messages
OTHERS = 1000  # users with a thread of two messages


def memory() -> Memory:
    """Make the memory that the studio shows."""
    return Memory(
        os.environ[URL],
        embeddings=Slices(DIMENSIONS),
        working_memory=WorkingMemoryOptions(),
    )


def fill(made: Memory, number: int, words: Words) -> int:
    """Store the messages in threads of 100 and a long one; return the number of threads beside it."""
    threads = number * 8 // 10 // BATCH
    for at in range(number // BATCH):
        thread = f"thread-{at}" if at < threads else LONG
        made.history.append(words.messages(BATCH), thread_id=thread, resource_id=USER)
    for other in range(OTHERS):
        made.history.append(words.messages(2), thread_id=f"of-{other}", resource_id=f"user-{other}")
    for revision in range(20):
        made.working_memory.update(f"# About\n- {words.texts(1)[0]}\n- {revision}", resource_id=USER)
    return threads


def main() -> None:
    """Measure every page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=100)
    asked = parser.parse_args()
    words = Words()
    with EmbeddedRedis() as server:
        os.environ[URL] = server.url or ""
        with memory() as made:
            threads = fill(made, asked.messages, words)
        command = [sys.executable, "-m", "langchain_workingmem.cli", "studio", "--write", "--memory", "studio:memory"]
        quiet, place = subprocess.DEVNULL, Path(__file__).parent
        with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=quiet, text=True) as studio:
            address = studio.stdout.readline().strip() if studio.stdout else ""
            try:
                with httpx.Client(follow_redirects=True) as browser:
                    browser.get(address).raise_for_status()
                    report(browser, address.partition("/?")[0], server, threads, words, asked.rounds)
            finally:
                studio.terminate()


def report(browser: httpx.Client, root: str, server: EmbeddedRedis, threads: int, words: Words, rounds: int) -> None:
    """Ask for each page `rounds` times, in turn with the others, and print the times."""

    def thread() -> str:
        return random.choice([LONG, f"thread-{random.randrange(threads)}"])

    def question() -> str:
        return words.texts(1, 4, 12)[0]

    pages: dict[str, Callable[[], dict[str, object]]] = {
        "threads /": lambda: {"user": USER},
        "users /users": dict,
        "timeline /timeline": lambda: {"user": USER},
        "threads, filtered /": lambda: {"user": USER, "q": "thread-1"},
        "conversation /thread": lambda: {"user": USER, "thread": thread()},
        "older messages /thread": lambda: {"user": USER, "thread": LONG, "at": random.randrange(BATCH, 5 * BATCH)},
        "first messages /thread": lambda: {"user": USER, "thread": LONG, "first": 1},
        "words in a long conversation /find": lambda: {"user": USER, "thread": LONG, "q": words.texts(1, 1, 1)[0]},
        "every message, in parts /find": lambda: {
            "user": USER,
            "thread": LONG,
            "q": words.texts(1, 1, 1)[0],
            "every": 1,
        },
        "context /context": lambda: {"user": USER, "thread": thread(), "q": question()},
        "context of an earlier turn /context": lambda: {
            "user": USER,
            "thread": LONG,
            "turn": 2 * random.randrange(5 * BATCH),
        },
        "two turns /compare": lambda: {"user": USER, "thread": LONG},
        "cost of a thread /cost": lambda: {"user": USER, "thread": LONG},
        "cost of a user /cost": lambda: {"user": USER},
        "two settings /recall/settings": lambda: {"user": USER, "q": question(), "b_search": "semantic"},
        "recall /recall": lambda: {"user": USER, "q": question()},
        "recall of a turn /recall": lambda: {"user": USER, "thread": thread(), "q": question()},
        "working memory /working-memory": lambda: {"user": USER},
        "observations /observations": lambda: {"user": USER, "thread": thread()},
        "store /store": lambda: {"user": USER},
        "data /data": lambda: {"user": USER},
        "doctor /doctor": dict,
    }
    times: dict[str, list[float]] = {name: [] for name in [*pages, "bare PING"]}
    client = redis.Redis.from_url(server.url or "")
    for _ in range(rounds):
        for name, parameters in pages.items():
            path, start = f"{root}{name.split()[-1]}?{urlencode(parameters())}", time.perf_counter()
            browser.get(path).raise_for_status()
            times[name].append(time.perf_counter() - start)
        start = time.perf_counter()
        client.ping()
        times["bare PING"].append(time.perf_counter() - start)
    client.close()
    for other in range(5):
        deleted(browser, root, f"user-{other}", times)
    print(environment(server.url or ""))
    print("| page | median | p95 |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {1000 * median(found):.1f} ms | {1000 * quantiles(found, n=20)[-1]:.1f} ms |")


def deleted(browser: httpx.Client, root: str, user: str, times: dict[str, list[float]]) -> None:
    """Delete a user of two messages; measure until the page says that they are deleted, and until it is verified."""
    start, form = time.perf_counter(), {"confirm": user}
    page = browser.post(f"{root}/delete?{urlencode({'user': user})}", data=form, headers={"origin": root}).text
    while ">Deleting<" in page:
        page = browser.get(f"{root}/deletion?{urlencode({'user': user})}").text
    times.setdefault("a user of two messages is deleted", []).append(time.perf_counter() - start)
    while "No key of Redis names the resource any more" not in page:
        time.sleep(0.1)
        page = browser.get(f"{root}/deletion?{urlencode({'user': user})}").text
    times.setdefault("and that is verified", []).append(time.perf_counter() - start)


if __name__ == "__main__":
    main()
