"""What contest.py compares: this package, and the least that keeps messages in Redis and finds them again with bare redis-py.

The floor has one index and two small scripts; it checks nothing, and its ids are the positions that one process counts.
"""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import redis
from langchain_core.messages import BaseMessage, message_to_dict, messages_from_dict
from texts import DIMS, WORD

from langchain_workingmem import HistoryOptions, Memory, RecallOptions, WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from texts import WordVectors

LAST, TOP = 10, 5
PROFILE: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}


class Package:
    """Memories on one server: `how` is sem(antic), hyb(rid), def(ault options) or last (without recall)."""

    def __init__(self, url: str, model: WordVectors) -> None:
        working_memory = WorkingMemoryOptions(schema=PROFILE)
        more: Any = {"history": HistoryOptions(last_messages=LAST), "working_memory": working_memory}
        self._make = partial(Memory, url, embeddings=model, **more)
        five: Any = {"top_k": TOP, "message_range": 2, "max_tokens": None, "embedding_cache_size": 0}
        self._semantic = RecallOptions(search="semantic", **five)
        self._of = {
            "sem": self._make(recall=self._semantic),
            "hyb": self._make(recall=RecallOptions(**five)),
            "def": self._make(recall=RecallOptions(embedding_cache_size=0)),
            "last": self._make(recall=False),
        }
        self._loop = asyncio.new_event_loop()

    def call(self, what: str, how: str, said: Sequence[BaseMessage], thread: str, user: str) -> Callable[[], object]:
        """Prepare a call."""
        memory = self._of[how or "sem"]
        ids: Any = {"thread_id": thread, "user_id": user}
        match what:
            case "search":
                return partial(memory.recall.search, str(said[0].content), user_id=user)
            case "ctx":
                return partial(memory.context, said, **ids)
            case "actx":
                return lambda: self._loop.run_until_complete(memory.acontext(said, **ids))
            case "save":
                return partial(memory.save_turn, said, **ids)
            case _:
                return partial(memory.history.append, said, **ids)

    def finish(self, users: Iterable[str]) -> None:
        """Store the users' profiles."""
        for user in users:
            self._of["sem"].working_memory.update({"name": "Sam"}, user_id=user, thread_id=f"{user}-0")


RECENT = "local ids = redis.call('ZRANGE', KEYS[1], -ARGV[1], -1) return redis.call('HMGET', KEYS[2], unpack(ids))"
AROUND = """local found = {} for at, id in ipairs(ARGV) do
local order, bodies = KEYS[2 * at - 1], KEYS[2 * at]
local position = redis.call('ZRANK', order, id)
local ids = redis.call('ZRANGE', order, math.max(0, position - 2), position + 2)
found[#found + 1] = ids found[#found + 1] = redis.call('HMGET', bodies, unpack(ids)) end return found"""
INDEX = f"""floor ON HASH PREFIX 1 m: SCHEMA user TAG thread TAG text TEXT
vector VECTOR FLAT 6 TYPE FLOAT32 DIM {DIMS} DISTANCE_METRIC COSINE"""


class Floor:
    """Of each thread the order and the bodies of messages, of each message a hash with the vector."""

    def __init__(self, url: str, model: WordVectors) -> None:
        client: Any = redis.Redis.from_url(url)
        client.execute_command("FT.CREATE", *INDEX.split())
        self._recent, self._around = client.script_load(RECENT), client.script_load(AROUND)
        self._client, self._model, self._ends = client, model, dict[str, int]()

    def call(self, what: str, how: str, said: Sequence[BaseMessage], thread: str, user: str) -> Callable[[], object]:
        """Prepare a call; there is none that is leaner in asyncio."""
        if what in {"save", "bulk"}:
            return partial(self._save, said, thread, user)
        return partial(self._ask, "" if what == "search" else thread, how, str(said[0].content), user)

    def finish(self, users: Iterable[str]) -> None:
        """Store the users' profiles."""
        for user in users:
            self._client.hset(f"profile:{user}", mapping={"document": '{"name": "Sam"}', "revision": 1})

    def _save(self, messages: Sequence[BaseMessage], thread: str, user: str) -> object:
        pipe = self._client.pipeline(transaction=True)
        vectors = self._model.embed_documents([str(message.content) for message in messages])
        for message, vector in zip(messages, vectors, strict=True):
            position = self._ends[thread] = self._ends.get(thread, 0) + 1
            fields = {"user": user, "thread": thread, "position": position, "text": message.content}
            pipe.hset(f"m:{{{thread}}}:{position}", mapping={**fields, "vector": np.array(vector, "f4").tobytes()})
            pipe.hset(f"bodies:{{{thread}}}", str(position), json.dumps(message_to_dict(message)))
            pipe.zadd(f"order:{{{thread}}}", {str(position): position})
        return pipe.execute()

    def _ask(self, thread: str, how: str, question: str, user: str) -> object:
        """Read the thread and the profile and search; in a second round trip fetch what stands around the best five."""
        pipe = self._client.pipeline(transaction=False)
        if thread:
            pipe.evalsha(self._recent, 2, f"order:{{{thread}}}", f"bodies:{{{thread}}}", LAST)
            pipe.hmget(f"profile:{user}", "document", "revision")
        before, depth = len(pipe), TOP if how == "sem" else 20
        mine = re.sub(r"([^A-Za-z0-9])", r"\\\1", user)
        fields, end = ("RETURN", 2, "thread", "position"), ("LIMIT", 0, depth, "DIALECT", 2)
        if how != "last":
            query = f"(@user:{{{mine}}})=>[KNN {depth} @vector $vector AS distance]"
            vector = np.array(self._model.embed_query(question), "f4").tobytes()
            ordered = ("PARAMS", 2, "vector", vector, "SORTBY", "distance")
            pipe.execute_command("FT.SEARCH", "floor", query, *ordered, *fields, *end)
        if how in {"hyb", "def"}:
            query = f"@user:{{{mine}}} @text:({'|'.join(dict.fromkeys(WORD.findall(question.lower())))})"
            pipe.execute_command("FT.SEARCH", "floor", query, *fields, "SCORER", "BM25STD", *end)
        replies = pipe.execute()
        found: dict[bytes, dict[bytes, bytes]] = {}
        scores: dict[bytes, float] = {}
        for reply in replies[before:]:
            for rank, one in enumerate(reply[b"results"]):
                found[one[b"id"]] = one[b"extra_attributes"]
                scores[one[b"id"]] = scores.get(one[b"id"], 0) + 1 / (60 + rank)
        best = [found[key] for key in sorted(scores, key=lambda key: -scores[key])[:TOP]]
        return self._windows(best) if best else [], decoded(replies[0]) if thread else None

    def _windows(self, best: list[dict[bytes, bytes]]) -> list[BaseMessage]:
        threads = [one[b"thread"].decode() for one in best]
        keys = [f"{kind}:{{{thread}}}" for thread in threads for kind in ("order", "bodies")]
        around = self._client.evalsha(self._around, len(keys), *keys, *(one[b"position"] for one in best))
        bodies: dict[tuple[str, bytes], bytes] = {}
        for thread, ids, those in zip(threads, around[::2], around[1::2], strict=True):
            bodies |= {(thread, id): body for id, body in zip(ids, those, strict=True)}
        return decoded(bodies.values())


def decoded(bodies: Iterable[bytes]) -> list[BaseMessage]:
    return messages_from_dict([json.loads(body) for body in bodies])
