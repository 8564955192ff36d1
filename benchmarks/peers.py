"""A turn beside packages that do a part of the same: saved, and assembled, on the same private server in the same run.

    pip install --group bench                    # from the root of the project; pip 25.1 or newer
    python benchmarks/peers.py                   # 10,000 messages of 20 users
    python benchmarks/peers.py --messages 400    # quick

A turn saves a question and its answer; a context is the last 10 messages of the thread and the 5 best for a question, as
far as the peer has them: docs/benchmarks.md says what each leaves out. The embedding model is a stub whose time is taken
off every call, so that what remains is the package and Redis. A package that is not installed is skipped.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import random
import statistics
import time
import warnings
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from uuid import uuid4

import redis
import redis.connection
from common import BATCH, HYBRID, SEMANTIC, STOP_WORDS, Slices, Words, environment, row
from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_core.messages import BaseMessage

THREADS = 5  # of each user
LAST, BEST = 10, 5


class Ids(NamedTuple):
    """Where a turn takes place."""

    user: str
    thread: str


class Timed(Slices):
    """The stub model, with what it was asked for and how long that took."""

    def __init__(self, dims: int) -> None:
        super().__init__(dims)
        self.dims = dims
        self.calls, self.seconds = 0, 0.0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        start = time.perf_counter()
        vectors = [[float(number) for number in vector] for vector in super().embed_documents(texts)]
        self.calls += 1
        self.seconds += time.perf_counter() - start
        return vectors


class Peer:
    """One way to keep conversations. `save` and `context` are what its documentation tells users to write."""

    package: ClassVar[str]
    name: ClassVar[str]

    def __init__(self, url: str, model: Timed) -> None:
        self.url, self.model = url, model
        self.client: Any = redis.Redis.from_url(url, protocol=2)  # langchain-redis cannot read RESP3

    def save(self, messages: Sequence[BaseMessage], ids: Ids) -> object:
        raise NotImplementedError

    def context(self, text: str, ids: Ids) -> Any:
        raise NotImplementedError

    def size(self, found: Any) -> int:
        """Count the messages of a context."""
        return len(found)


class Ours(Peer):
    package = "langchain_workingmem"
    name = "Memory, hybrid"
    options = HYBRID

    def __init__(self, url: str, model: Timed) -> None:
        super().__init__(url, model)
        self.memory = Memory(url, embeddings=model, recall=self.options, key_prefix=self.options.search)

    def save(self, messages: Sequence[BaseMessage], ids: Ids) -> object:
        return self.memory.save_turn(messages, thread_id=ids.thread, user_id=ids.user)

    def context(self, text: str, ids: Ids) -> Any:
        return self.memory.context(text, thread_id=ids.thread, user_id=ids.user)

    def size(self, found: Any) -> int:
        return len({message.id for message in (*found.messages, *found.recalled.messages)} - {None})


class OursSemantic(Ours):
    name = "Memory, semantic"
    options = SEMANTIC


class LangGraphStore(Peer):
    package = "langgraph.store.redis"
    name = "langgraph-checkpoint-redis RedisStore"

    def __init__(self, url: str, model: Timed) -> None:
        super().__init__(url, model)
        from langgraph.store.redis import RedisStore

        self.store = RedisStore(self.client, index={"dims": model.dims, "embed": model, "fields": ["text"]})
        self.store.setup()

    def save(self, messages: Sequence[BaseMessage], ids: Ids) -> object:
        return self.store.batch(
            [PutOp(ids, uuid4().hex, {"role": one.type, "text": str(one.text)}) for one in messages]
        )

    def context(self, text: str, ids: Ids) -> Any:
        return self.store.search((ids.user,), query=text, limit=BEST)


class ChatHistory(Peer):
    package = "langchain_redis"
    name = "langchain-redis RedisChatMessageHistory"

    def __init__(self, url: str, model: Timed) -> None:
        super().__init__(url, model)
        self.histories: dict[str, Any] = {}

    def of(self, thread: str) -> Any:
        if thread not in self.histories:
            from langchain_redis import RedisChatMessageHistory

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecated since 0.2.6
                self.histories[thread] = RedisChatMessageHistory(thread, redis_client=self.client)
        return self.histories[thread]

    def save(self, messages: Sequence[BaseMessage], ids: Ids) -> object:
        return self.of(ids.thread).add_messages(messages)

    def context(self, text: str, ids: Ids) -> Any:
        history = self.of(ids.thread)
        return [*history.messages[-LAST:], *history.search_messages(text, limit=BEST)]


class SemanticHistory(Peer):
    package = "redisvl"
    name = "redisvl SemanticMessageHistory"

    def __init__(self, url: str, model: Timed) -> None:
        super().__init__(url, model)
        from redisvl.extensions.message_history import SemanticMessageHistory
        from redisvl.utils.vectorize import CustomVectorizer

        # its threshold leaves out what is not near: with random vectors all is far, so let all in
        self.history = SemanticMessageHistory(
            "peer-redisvl",
            vectorizer=CustomVectorizer(embed=model.embed_query, embed_many=model.embed_documents),
            distance_threshold=2.0,
            redis_client=self.client,
        )

    def save(self, messages: Sequence[BaseMessage], ids: Ids) -> object:
        roles = {"human": "user", "ai": "llm"}
        rows = [{"role": roles[one.type], "content": str(one.text)} for one in messages]
        return self.history.add_messages(rows, session_tag=ids.thread)

    def context(self, text: str, ids: Ids) -> Any:
        recent = self.history.get_recent(top_k=LAST, session_tag=ids.thread)
        return recent + self.history.get_relevant(text, top_k=BEST, session_tag=ids.thread)


class LangMem(Peer):
    package = "langmem"
    name = "langmem tools over InMemoryStore"

    def __init__(self, url: str, model: Timed) -> None:
        super().__init__(url, model)
        from langmem import create_manage_memory_tool, create_search_memory_tool

        store = InMemoryStore(index={"dims": model.dims, "embed": model})
        namespace = ("memories", "{user}")
        self.manage = create_manage_memory_tool(namespace, store=store)
        self.find = create_search_memory_tool(namespace, store=store)

    def config(self, ids: Ids) -> Any:
        return {"configurable": {"user": ids.user}}

    def save(self, messages: Sequence[BaseMessage], ids: Ids) -> object:
        config = self.config(ids)
        return [self.manage.invoke({"action": "create", "content": str(one.text)}, config) for one in messages]

    def context(self, text: str, ids: Ids) -> Any:
        return self.find.invoke({"query": text, "limit": BEST}, self.config(ids))

    def size(self, found: Any) -> int:
        return len(json.loads(found))


PEERS: tuple[type[Peer], ...] = (Ours, OursSemantic, LangGraphStore, ChatHistory, SemanticHistory, LangMem)


class RoundTrips:
    """Counts what is written to a socket at once, whoever writes it."""

    def __init__(self) -> None:
        self.count = 0
        send: Any = redis.connection.AbstractConnection.send_packed_command

        def counted(connection: Any, command: Any, check_health: bool = True) -> None:  # noqa: FBT001, FBT002
            self.count += 1
            send(connection, command, check_health)

        redis.connection.AbstractConnection.send_packed_command = counted  # type: ignore[method-assign]


class Operation:
    """What calls of one kind cost, without the time of the model."""

    def __init__(self, peer: Peer, trips: RoundTrips) -> None:
        self._model, self._trips = peer.model, trips
        self.times: list[float] = []
        self.calls: list[int] = []  # of the model
        self.trips: list[int] = []

    def time(self, call: Callable[..., Any], *arguments: object) -> Any:
        model, trips = self._model, self._trips
        seconds, calls, count, start = model.seconds, model.calls, trips.count, time.perf_counter()
        result = call(*arguments)
        self.times.append(time.perf_counter() - start - (model.seconds - seconds))
        self.calls.append(model.calls - calls)
        self.trips.append(trips.count - count)
        return result

    def cells(self, warm_up: int) -> Iterator[str]:
        yield f"{statistics.median(self.times[warm_up:]) * 1000:.2f}"
        yield f"{statistics.median(self.trips[warm_up:]):g}"
        yield f"{statistics.median(self.calls[warm_up:]):g}"


class Bench:
    """Fills every peer with the same texts, then takes turns with all of them in an order left to chance."""

    def __init__(self, url: str, args: argparse.Namespace) -> None:
        self.args, self.words, self.trips = args, Words(), RoundTrips()
        self.client: Any = redis.Redis.from_url(url)
        self.peers = [kind(url, Timed(args.dims)) for kind in PEERS if installed(kind)]
        self.saves = [Operation(peer, self.trips) for peer in self.peers]
        self.contexts = [Operation(peer, self.trips) for peer in self.peers]
        self.sizes: list[list[int]] = [[] for _ in self.peers]

    def question(self) -> str:
        # two stop words in front of an OR crash RediSearch 2.10, and not every peer leaves them out
        return " ".join(word for word in self.words.texts(1, 12, 20)[0].split() if word not in STOP_WORDS)

    def fill(self, peer: Peer) -> tuple[float, float]:
        """Return messages a second, without the model, and bytes of Redis a message."""
        each = self.args.messages // (self.args.users * THREADS)
        before, filling = self.client.info("memory")["used_memory"], Operation(peer, self.trips)
        for user, thread in product(range(self.args.users), range(THREADS)):
            for at in range(0, each, BATCH):
                messages = self.words.messages(min(BATCH, each - at))
                filling.time(peer.save, messages, ids(user, thread))
        total = each * self.args.users * THREADS
        return total / sum(filling.times), (self.client.info("memory")["used_memory"] - before) / total

    def run(self) -> Iterator[str]:
        filled = [self.fill(peer) for peer in self.peers]
        warm_up = max(2, self.args.rounds // 10)
        for _ in range(self.args.rounds + warm_up):
            where = ids(random.randrange(self.args.users), random.randrange(THREADS))
            text, messages = self.question(), self.words.messages(2)
            for place in random.sample(range(len(self.peers)), len(self.peers)):
                peer = self.peers[place]
                self.sizes[place].append(peer.size(self.contexts[place].time(peer.context, text, where)))
                self.saves[place].time(peer.save, [one.model_copy() for one in messages], where)
        cost = ("ms", "round trips", "model calls")
        yield ""
        yield row("", "context:", *cost, "messages", "save:", *cost, "messages/s in", "bytes a message")
        yield row("---", *["--:"] * 11)
        for place, (peer, (rate, size)) in enumerate(zip(self.peers, filled, strict=True)):
            context, save = self.contexts[place].cells(warm_up), self.saves[place].cells(warm_up)
            came_back = f"{statistics.median(self.sizes[place][warm_up:]):g}"
            yield row(peer.name, "", *context, came_back, "", *save, f"{rate:,.0f}", f"{max(0, size):,.0f}")
        models = [peer.model for peer in self.peers]
        each = sum(model.seconds for model in models) / sum(model.calls for model in models)
        yield f"\nThe stub model took {each * 1e6:.0f} us a call, which is taken off."


def ids(user: int, thread: int) -> Ids:
    return Ids(f"user{user:04}", f"user{user:04}-{thread}")  # no id begins with another: RedisStore would mix them up


def installed(peer: type[Peer]) -> bool:
    try:
        found = importlib.util.find_spec(peer.package) is not None
    except ModuleNotFoundError:  # of a package around it
        found = False
    if not found:
        print(f"{peer.name}: not installed, skipped (pip install --group bench)")
    return found


def versions() -> str:
    names = ("langgraph-checkpoint-redis", "langchain-redis", "redisvl", "langmem")
    present = {one.metadata["Name"] for one in importlib.metadata.distributions()}
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names if name in present)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("messages", 10_000), ("users", 20), ("rounds", 200), ("dims", 384)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    random.seed(3)
    with EmbeddedRedis() as server:
        print(f"{environment(server.url)}, {versions()}")
        print(f"{args.messages:,} messages of {args.users} users in {THREADS} threads each, {args.dims} dims; p50")
        print(*Bench(server.url, args).run(), sep="\n")


if __name__ == "__main__":
    main()
