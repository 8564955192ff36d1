"""The runner of sync callers: it performs the effects of plans."""

from __future__ import annotations

import functools
import random
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from redis.cluster import RedisCluster
from redis.exceptions import ConnectionError as ConnectionLost

from langchain_workingmem._engine import cluster
from langchain_workingmem._engine.background import Background, in_thread
from langchain_workingmem._engine.breaker import Breaker
from langchain_workingmem._engine.exchange import exchange, pipelined, take
from langchain_workingmem._engine.plan import Call, Send, Sleep, Spawn
from langchain_workingmem._engine.replies import ERRORS, answered, refused
from langchain_workingmem.errors import RedisConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_workingmem._engine.exchange import SyncClient
    from langchain_workingmem._engine.plan import Command, Effect, Plan

T = TypeVar("T")


@dataclass(eq=False, repr=False)
class Runner:
    """Runs plans for sync callers. A borrowed client belongs to the caller, who closes it."""

    connect: Callable[[], SyncClient]
    borrowed: SyncClient | None = None
    revive: Callable[[], None] | None = field(default=None, init=False)  # restarts the embedded server if it died
    breaker: Breaker = field(default_factory=Breaker, init=False)  # is closed when Redis answers
    _own: SyncClient | None = field(default=None, init=False)
    _background: Background = field(default_factory=Background, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    @property
    def client(self) -> Any:  # redis-py types its commands for direct callers only
        """The client, made at the first use."""
        client = self._own if self.borrowed is None else self.borrowed
        if client is None:
            with self._lock:
                if self._own is None:
                    self._own = self.connect()
                client = self._own
        return client

    def run(self, plan: Plan[T]) -> T:
        """Run a plan and return its result."""
        try:
            effect = next(plan)
            while True:
                try:
                    result = self.send(effect) if isinstance(effect, Send) else self._perform(effect)
                except Exception as error:  # noqa: BLE001 - raised in the plan
                    effect = plan.throw(error)
                else:
                    effect = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        finally:
            plan.close()

    def _perform(self, effect: Effect[Any]) -> Any:
        match effect:
            case Call(call):
                return call()
            case Sleep(seconds, jitter):
                time.sleep(random.uniform(0, seconds) if jitter else seconds)  # noqa: S311 - no secret
            case Spawn(plan, slow):
                self._background.start(functools.partial(self.run, plan), slow=slow)
        return None

    def send(self, effect: Send) -> Any:
        """Perform a `Send`."""
        client, commands, node = self.client, effect.commands, effect.node
        if node == "*":
            return self._everywhere(client, commands)
        if effect.in_order and isinstance(client, RedisCluster):  # its nodes work in parallel
            return [
                reply for one in commands for reply in self._exchange(client, [one], at_most_once=effect.at_most_once)
            ]
        return self._exchange(
            cluster.node_of(client, node) if node else client, commands, at_most_once=effect.at_most_once
        )

    def _everywhere(self, client: Any, commands: Sequence[Command]) -> dict[str, list[Any] | RedisConnectionError]:
        found: dict[str, list[Any] | RedisConnectionError] = {}
        for name in cluster.at_once(cluster.masters(client)):
            try:
                found[name] = self._exchange(cluster.node_of(client, name), commands)
            except RedisConnectionError as error:
                found[name] = error
        return answered(found)

    def _exchange(self, client: Any, commands: Sequence[Command], *, at_most_once: bool = False) -> list[Any]:
        """Make one round trip; a refused command gives a `RedisReplyError`."""
        own = self.borrowed is None
        unsure = at_most_once and not own
        try:
            if own:
                connection = take(client)  # a failure here has sent nothing
                unsure = at_most_once
                replies = exchange(client, connection, commands)
            elif isinstance(client, RedisCluster) and cluster.has_search(commands):
                call = functools.partial(self._exchange, client, at_most_once=at_most_once)
                replies = cluster.search(client, commands, call, again=not at_most_once)
            else:
                replies = pipelined(client, commands)
        except ERRORS as error:
            if self.revive is not None and isinstance(error, ConnectionLost):
                self.revive()
            replies = [refused(error, own=own, unsure=unsure)]
        if self.breaker.since is not None:
            self.breaker.close()
        return replies

    def settled(self) -> None:
        """Wait for the background plans, also for those that they start."""
        self._background.wait()

    async def asettled(self) -> None:
        """Async twin of `settled`; it does not hold up the event loop."""
        await in_thread(self.settled)

    def close(self) -> None:
        """Wait for background plans, and close the client that was made here."""
        self.settled()
        with self._lock:
            own, self._own = self._own, None
        if own is not None:
            own.close()
