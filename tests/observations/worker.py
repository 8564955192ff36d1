"""One of two processes that talk and observe, until it is killed or its time is over.

python -m tests.observations.worker <url> <key prefix> <scope> <number> <journal> <seconds> <deletes>

It writes to the journal what it says before it saves it, what it has deleted, and what a call of the observer was shown once the
model has answered.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatResult

from langchain_workingmem import HistoryOptions, Memory, ObservationOptions, WorkingMemError
from langchain_workingmem.observations.observer import runs
from tests.observations.scripted import INSTRUCTIONS, Observer

THREADS = ("p0", "p1", "p2")
OWNER = "ann"


class Journal:
    """Lines that outlive the process: each is written with one system call."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, kind: str, *values: Any) -> None:
        os.write(self._file, (json.dumps([kind, *values]) + "\n").encode())


class Journalling(Observer):
    """Takes a moment to answer, and notes what it was shown."""

    journal: Any

    def _generate(self, messages: list[Any], *rest: Any, **more: Any) -> ChatResult:
        time.sleep(random.uniform(0, 0.02))
        made = super()._generate(messages, *rest, **more)
        call = self.calls[-1]
        is_usable = "[" in str(made.generations[0].text)  # else the same messages are shown again
        self.journal.write("call", call.kind, sorted(call.canaries), call.problems, is_usable)
        return made


def options(scope: Any, model: Observer, *, background: bool) -> ObservationOptions:
    from datetime import timedelta

    return ObservationOptions(
        model=model,
        scope=scope,
        message_tokens=240,
        keep_tokens=60,
        batch_tokens=160,
        observation_tokens=160,
        instructions=INSTRUCTIONS,
        background=background,
        timeout=timedelta(seconds=2),
    )


def main() -> None:
    runs.SPARE = 1.0  # the lease of a killed process is over soon
    url, prefix, scope, number, path, seconds, deletes = sys.argv[1:]
    journal = Journal(Path(path))
    chance = random.Random(number)
    model = Journalling(journal=journal, has_low=False)
    memory: Any = Memory(
        url,
        key_prefix=prefix,
        history=HistoryOptions(last_messages=None),
        observations=options(scope, model, background=True),
    )
    end, count = time.monotonic() + float(seconds), int(number) * 10_000
    print("ready", flush=True)  # noqa: T201 - for the test
    said: list[tuple[str, str]] = []
    while time.monotonic() < end:
        thread = chance.choice(THREADS)
        ids = {"thread_id": thread, "user_id": OWNER}
        action = chance.random()
        if action < 0.7:
            count += 2
            texts = [f"zq{n}x {'word ' * chance.choice([5, 20, 60])}zq{n}x" for n in (count, count + 1)]
            journal.write("saying", *texts)
            memory.context(texts[0], **ids)
            memory.save_turn([HumanMessage(texts[0], id=f"i{count}"), AIMessage(texts[1], id=f"i{count + 1}")], **ids)
            said.append((thread, str(count)))
        elif action < 0.9:
            model.part = chance.choice(["good", "good", "good", "empty", "raising"])
            with suppress(WorkingMemError):
                memory.observations.observe(thread, user_id=OWNER)
            model.part = "good"
        elif int(deletes) and said:
            thread, chosen = said.pop(chance.randrange(len(said)))
            memory.history.delete([f"i{chosen}"], thread_id=thread, user_id=OWNER)
            journal.write("deleted", f"zq{chosen}x")
    memory.close()
    print("done", flush=True)  # noqa: T201 - for the test


if __name__ == "__main__":
    main()
