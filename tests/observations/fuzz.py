"""Random lives of users with threads, whose observers are scripted; after each step the contract is checked.

A life is a `Config` and a list of steps; both follow from a seed. A step that finds nothing to do does nothing, so any part of a
list is a life as well, and a failing life shrinks.

    python -m tests.observations.fuzz 0-99              these seeds
    python -m tests.observations.fuzz 17 --shrink       and the shortest life that breaks the same rule
    python -m tests.observations.fuzz --life life.json  a life as it was printed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import redis

from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.trips import Trips, counted_trips
from tests.observations.checks import IGNORED, ViolationError
from tests.observations.life import Life
from tests.observations.scripted import BAD, GOOD, LOOSE
from tests.observations.world import Config, Step


def config_of(seed: int, **fixed: Any) -> Config:
    draw = random.Random(f"config {seed}")
    background = draw.random() < 0.5
    chosen: dict[str, Any] = {
        "scope": draw.choice(["thread", "user"]),
        "background": background,
        "parts": "loose" if draw.random() < 0.25 else "good",
        "placement": draw.choice([None, None, "question", "system"]),
        "ttl": draw.random() < 0.2,
        "max_tokens": draw.choice([None] * 7 + [300]),
        "recall": draw.random() < 0.2,
        "lazy": background and draw.random() < 0.3,
        "slow": draw.random() < 0.1,
        "ahead": draw.random() < 0.4,
    }
    return Config(**{**chosen, **fixed})


def steps_of(seed: int, config: Config) -> list[Step]:
    """Draw the steps of a life. After the name come whole numbers, which are read modulo what there is."""
    draw = random.Random(f"steps {seed}")
    changes = {
        "update": 1.2,
        "truncate": 0.5,
        "delete": 1.4,
        "clear": 0.4,
        "delete_thread": 0.5,
        "clone": 0.6,
        "transfer": 0.6,
        "forget": 0.5,
        "wipe": 0.3,
        "move": 0.3,
        "gone": 0.25,
        "append": 0.6,
        "expire": 0.5 if config.ttl else 0.0,
    }
    weights = {
        **changes,
        "say": 11.0,
        "observe": 3.0,
        "model": 2.5,
        "edit": 1.0,
        "regenerate": 0.8,
        "both": 0.7,
        "race": 1.6,
        "foreign": 0.4,
    }

    # user, thread, memory, and two numbers of the step's own
    def numbers() -> tuple[int, ...]:
        return (
            draw.choice([0, 0, 0, 1]),
            draw.choice([0, 0, 0, 1, 1, 2]),
            draw.randrange(3),
            draw.randrange(1000),
            draw.randrange(1000),
        )

    steps: list[Step] = []
    for _ in range(draw.randint(14, 32)):
        name = draw.choices([*weights], [*weights.values()])[0]
        if name == "model":
            kinds = [*BAD, "raising", "flaky", *(["slow"] * 3 if config.slow else [])]
            part = draw.choice([*GOOD, *(LOOSE * 2 if config.parts == "loose" else ())])
            if draw.random() < 0.5:
                part = draw.choice([*kinds, *(f"once {kind}" for kind in kinds if kind != "flaky")])
            steps.append((name, part))
            steps.append(("observe", *numbers()))
            if draw.random() < 0.6:
                steps.append((name, "good"))
        elif name == "race":
            within = draw.choices([*changes, "say", "edit"], [*changes.values(), 2.0, 1.0])[0]
            steps.append((name, *numbers(), within, *numbers()[2:]))
        else:
            steps.append((name, *numbers()))
    return [*steps, ("model", "good"), ("observe", 0, 0, draw.randrange(2), 0, 0)]


# ---------------------------------------------------------------------- lives


def live(url: str, prefix: str, config: Config, steps: Sequence[Step], trips: Trips | None = None) -> None:
    """Run a life; a violation says which, and how to repeat it."""
    with asyncio.Runner() as runner:
        life = Life(url, prefix, config, runner, trips)
        try:
            life.run(steps)
        except ViolationError as error:
            error.add_note(f"config {asdict(config)}\nsteps {life.done}")
            raise
        finally:
            if life.model.gate is not None:
                life.model.gate.released.set()
            life.close()
            _clean(url, prefix)


def _clean(url: str, prefix: str) -> None:
    with redis.Redis.from_url(url) as client:
        bare: Any = client
        for index in bare.execute_command("FT._LIST"):
            if index.startswith(prefix.encode()):
                bare.execute_command("FT.DROPINDEX", index)
        if keys := list(client.scan_iter(f"{prefix}*", count=1000)):
            client.unlink(*keys)


def life_of(seed: int, **fixed: Any) -> tuple[Config, list[Step]]:
    config = config_of(seed, **fixed)
    return config, steps_of(seed, config)


def failure_of(url: str, config: Config, steps: Sequence[Step], trips: Trips | None = None) -> Exception | None:
    """Run a life, and return what went wrong."""
    try:
        live(url, f"f{uuid4().hex[:10]}", config, steps, trips)
    except Exception as error:  # noqa: BLE001 - a driver that fails is worth a report as well
        return error
    return None


def rule_of(error: Exception | None) -> str:
    return error.rule if isinstance(error, ViolationError) else type(error).__name__


def shrink(url: str, config: Config, steps: Sequence[Step], rule: str, trips: Trips | None = None) -> list[Step]:
    """Leave out steps as long as the same rule is broken."""
    kept, size = list(steps), max(1, len(steps) // 2)
    while size:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            if fewer and rule_of(failure_of(url, config, fewer, trips)) == rule:
                kept = fewer
            else:
                at += size
        size //= 2
    return kept


def written(config: Config, steps: Sequence[Step]) -> str:
    return json.dumps({"config": asdict(config), "steps": steps})


def read_life(text: str) -> tuple[Config, list[Step]]:
    life = json.loads(text)
    return Config(**life["config"]), [tuple(step) for step in life["steps"]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", nargs="?", default="0-29", help="a number, or the first and the last")
    parser.add_argument("--life", type=Path, help="a file with a life as JSON")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--set", default="{}", help='options of every life as JSON, such as {"scope": "thread"}')
    parser.add_argument("--ignore", action="append", default=[], help="a rule that is known to be broken")
    asked = parser.parse_args(arguments)
    IGNORED.update(asked.ignore)
    first, _, last = asked.seeds.partition("-")
    lives = (
        {str(asked.life): read_life(asked.life.read_text())}
        if asked.life
        else {str(seed): life_of(seed, **json.loads(asked.set)) for seed in range(int(first), int(last or first) + 1)}
    )
    broken: dict[str, list[str]] = {}
    with EmbeddedRedis() as server, counted_trips() as trips:
        for name, (config, steps) in lives.items():
            began = time.monotonic()
            error = failure_of(server.url, config, steps, trips)
            if error is None:
                continue
            broken.setdefault(rule_of(error), []).append(name)
            print(f"life {name} ({time.monotonic() - began:.1f} s): {error}"[:900])
            if not isinstance(error, ViolationError):
                traceback.print_exception(error)
            if asked.shrink:
                shortest = shrink(server.url, config, steps, rule_of(error), trips)
                print(f"shortest: {failure_of(server.url, config, shortest, trips)}"[:900])
                print(written(config, shortest), flush=True)
            else:
                print(written(config, steps), flush=True)
    print(f"{len(lives)} lives, {sum(map(len, broken.values()))} broken")
    for rule, names in broken.items():
        print(f"  {rule}: {' '.join(names)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
