"""What memory costs on different servers, with vectors of each number type.

    python benchmarks/engines.py                                  # the embedded server
    python benchmarks/engines.py redis-8.0/bin/redis-server redis-8.6/bin/redis-server

Each engine and number type has a private server on a Unix socket, filled through `history.append` with short messages of 26
words (122 characters), in threads of 100. A row shows
- all bytes that a message takes in Redis: history, both indexes, and its vector there and in its document;
- a search by vector with bare redis-py: the 100 nearest messages of one user, as recall asks, and the 10 nearest of all;
- `context`, semantic and hybrid, beside the same commands sent with bare redis-py.
All rows are measured in one run, one call of each in random order, so compare rows of one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import tempfile
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis
from common import BATCH, HYBRID, SEMANTIC, Case, Slices, Target, Words, alternate, clients, engine_of, row
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from langchain_workingmem import IndexOptions, RedisCapabilityError
from langchain_workingmem.embedded import BINARY_VARIABLE, command_of, find_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from common import Pair

DTYPES = ("float32", "float16", "int8")
NEAREST_OF_ALL = 10


@contextlib.contextmanager
def serve(binary: str | None) -> Iterator[str]:
    """Run a server with nothing but Search, and give its URL; without a binary that of the embedded server."""
    engine = find_engine({**os.environ, BINARY_VARIABLE: binary} if binary else os.environ)
    with tempfile.TemporaryDirectory(prefix="workingmem-") as name:
        socket_path = Path(name, "redis.sock")
        command = command_of(engine, Path(name), socket_path)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = f"unix://{socket_path}"
            with redis.Redis.from_url(url, retry=Retry(ConstantBackoff(0.05), 200)) as client:
                client.ping()
            yield url
        finally:
            process.kill()
            process.wait()


class Engine:
    """A server with vectors of one number type."""

    def __init__(self, url: str, dtype: Any, model: Slices, words: Words) -> None:
        self.name, self._words = f"{engine_of(url)}, {dtype}", words
        index = IndexOptions(dtype=dtype)
        self.semantic = Target(url, model, words, replace(SEMANTIC, index=index))
        self.hybrid = Target(url, model, words, replace(HYBRID, index=index))
        self._ids: list[tuple[str, str]] = []
        self.bytes = 0.0
        self.knn = Case("knn", self._knn)
        self.contexts = [Case("context", partial(self._context, target)) for target in (self.semantic, self.hybrid)]

    def fill(self, users: int, threads: int, length: int) -> None:
        """Save messages of so many words, and count what they take."""
        self._ids = [(f"user-{user}", f"thread-{user}-{at}") for user in range(users) for at in range(threads)]
        before = self.semantic.used_memory()
        for user, thread in self._ids:
            messages = self._words.messages(BATCH, length, length)
            self.semantic.memory.history.append(messages, thread_id=thread, user_id=user)
        self.bytes = (self.semantic.used_memory() - before) / (len(self._ids) * BATCH)

    def _knn(self) -> Pair:
        """Give the search of one user's messages, and beside it that of all."""
        user, _ = random.choice(self._ids)
        text = self.semantic.question()
        (search, *_), *_ = self.semantic.trips(lambda memory: memory.recall.search(text, user_id=user))
        everywhere = f"*=>[KNN {NEAREST_OF_ALL} @vector $vector AS vector_distance]"
        send = self.semantic.client.execute_command
        return partial(send, *search), partial(send, *search[:2], everywhere, *search[3:])

    def _context(self, target: Target) -> Pair:
        user, thread = random.choice(self._ids)
        return target.context(thread_id=thread, user_id=user)

    def row(self, skip: int) -> str:
        """Show the medians."""
        cells = [f"{time:.2f}" for time in self.knn.p50s(skip)]
        for case in self.contexts:
            ours, bare = case.p50s(skip)
            cells += [f"{ours:.2f}", f"{bare:.2f}", f"{ours / bare:.2f}"]
        return row(self.name, f"{self.bytes:,.0f}", *cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", metavar="REDIS_SERVER", help="a redis-server with Search beside it")
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--threads", type=int, default=10, help=f"of each user, with {BATCH} messages each")
    parser.add_argument("--words", type=int, default=26, help="of a message")
    parser.add_argument("--dims", type=int, default=384)
    parser.add_argument("--rounds", type=int, default=200, help="calls of each operation in each row")
    args = parser.parse_args()
    random.seed(3)
    model, words = Slices(args.dims), Words()
    with contextlib.ExitStack() as running:
        engines: list[Engine] = []
        for server, dtype in product(args.servers or [None], DTYPES):
            url = running.enter_context(serve(server))
            try:
                engine = Engine(url, dtype, model, words)
            except RedisCapabilityError:
                print(f"{engine_of(url)}: no vectors of {dtype}, skipped")
                continue
            engine.fill(args.users, args.threads, args.words)
            engines.append(engine)
        each = args.threads * BATCH
        print(f"{args.users} users with {each:,} messages each, {args.dims} dims; {clients()}; p50 in ms\n")
        warm_up = max(2, args.rounds // 10)
        cases = [case for engine in engines for case in (engine.knn, *engine.contexts)]
        alternate(cases, args.rounds, warm_up)
        contexts = [cell for kind in ("semantic", "hybrid") for cell in (f"context, {kind}", "bare", "ratio")]
        print(row("engine", "bytes a message", "KNN of a user", "KNN of all", *contexts))
        print(row("---", *["--:"] * 9))
        print(*(engine.row(warm_up) for engine in engines), sep="\n")


if __name__ == "__main__":
    main()
