"""Plans driven by hand: no server runs, the test says what a server answers."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from langchain_workingmem._documents.messages import encode_body
from langchain_workingmem._engine.effects import (
    Ask,
    Command,
    Effect,
    Embed,
    Later,
    Masters,
    Pause,
    Plan,
    Send,
    Work,
)
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._redis.layout import LAYOUT
from langchain_workingmem._redis.scripts import _COVERED
from langchain_workingmem.errors import EmbeddingError, RedisReplyError, WorkingMemError
from tests.helpers.embeddings import WordEmbeddings

KEYS = Keys()


class ByHand:
    """A runner in the hands of a test: it keeps what plans ask for, and answers from a list.

    An answer holds a reply for each command of a request, or is an error of the connection. The indexes are there.
    """

    def __init__(self) -> None:
        _COVERED.clear()  # what a process has met in other tests
        self.answers: list[Any] = []
        self.asked: list[Effect[object]] = []  # without the requests that make sure of the indexes
        self.later: list[Plan[None]] = []  # what was to run in the background
        self.model = WordEmbeddings(4)

    def run(self, plan: Plan[Any], progress: Callable[[int, int], object] | None = None) -> Any:
        step: Callable[[], Effect[object]] = partial(next, plan)
        while True:
            try:
                effect = step()
            except StopIteration as done:
                return done.value
            try:
                step = partial(plan.send, self._answer(effect))
            except WorkingMemError as error:
                step = partial(plan.throw, error)

    def _answer(self, effect: Effect[object]) -> Any:
        match effect:
            case Work(call):
                return call()
            case Masters():
                return ("",)
            case Later(plan):
                self.later.append(plan)
            case Send(commands) if (about_indexes := _set_up(commands)) is not None:
                return about_indexes
            case Embed(texts):
                self.asked.append(effect)
                if self.model.broken:
                    raise EmbeddingError(str(self.model.broken))
                return np.array(self.model.embed_documents(list(texts)), np.float32)
            case Pause():
                self.asked.append(effect)
            case Send() | Ask():
                self.asked.append(effect)
                assert self.answers, f"there is no answer to {effect}"
                answer = self.answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                return answer
        return None

    @property
    def steps(self) -> list[Any]:
        """What was asked, in short: the commands of each request, the texts of each call of the model."""
        return [
            words_of(effect.commands)
            if isinstance(effect, Send)
            else tuple(effect.texts)
            if isinstance(effect, Embed)
            else type(effect).__name__
            for effect in self.asked
        ]

    def request(self, number: int) -> Sequence[Command]:
        """Return the commands of a request; -1 is the last."""
        return [effect for effect in self.asked if isinstance(effect, Send)][number].commands


def _set_up(commands: Sequence[Command]) -> list[Any] | None:
    """Answer what makes sure of the layout and of the indexes: they are there, and are what is wanted."""
    if str(commands[0][1]).endswith(":layout"):
        return [LAYOUT.encode(), 1, [], RedisReplyError("ERR unknown command 'HELLO'")][: len(commands)]
    if commands[0][0] == "FT.CREATE":
        return [RedisReplyError("Index already exists")]
    if commands[0][0] == "SET" and commands[0][3:] == ("NX",):
        return [None, commands[0][2], None][: len(commands)]
    return None


_NAMES: dict[str, str] = {}  # of scripts, by their digests


def _name_of(sha: str) -> str | None:
    """Name a script as the package's modules do; all modules are looked through only for one that is not known yet."""
    if sha not in _NAMES:
        _NAMES.update(_scripts())
    return _NAMES.get(sha)


def _scripts() -> dict[str, str]:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("langchain_workingmem.")]
    named = [pair for module in modules for pair in vars(module).items()]
    return {script.sha: name for name, script in named if type(script).__name__ == "Script"}


def words_of(commands: Sequence[Command]) -> list[str]:
    """Name commands by their first word, and scripts by their name, with a ! where their source was sent."""
    found = []
    for first, second, *_ in commands:
        if first not in {"EVAL", "EVALSHA"}:
            found.append(str(first))
            continue
        sha = hashlib.sha1(str(second).encode()).hexdigest() if first == "EVAL" else str(second)
        found.append(f"{_name_of(sha) or first}{'!' * (first == 'EVAL')}")
    return found


def thread_row(user_id: str, at: int = 1_000_000, **more: Any) -> dict[bytes, bytes]:
    """A thread as HGETALL gives it."""
    fields = {"user": user_id, "created_at": at, "updated_at": at, "count": 2, **more}
    return {name.encode(): str(value).encode() for name, value in fields.items()}


def stored(*messages: Any, at: int = 1_000_000) -> list[bytes]:
    """Messages as scripts give them: id, sequence number, value, ..."""
    found = []
    for number, message in enumerate(messages):
        head = f'{{"stored_at":{at + number},"vectors":"","said":"q/1/{number + 1}","state":"",'
        found += [message.id.encode(), str(number).encode(), head.encode() + encode_body(message)[0]]
    return found


def found(*keys_and_distances: tuple[str, float]) -> list[Any]:
    """A reply of a vector search."""
    reply: list[Any] = [len(keys_and_distances)]
    for key, distance in keys_and_distances:
        reply += [key.encode(), f"#{distance}".encode()]
    return reply


def vector_key(thread_id: str, seq: int, chunk: int = 0, author: str = "") -> str:
    return f"{KEYS.of(thread_id).vector}{seq}:{chunk}:5{f'~{author}' if author else ''}"
