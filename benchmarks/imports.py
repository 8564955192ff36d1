"""What do an import and the first turn of a program cost, beside what cannot be avoided, or beside another checkout?

Everything runs in processes of its own, in an order left to chance. Medians of processor time; ratios are those of the medians
with their 95 % interval by bootstrap. Where a whole process is measured, Python's own start (10 ms) is included.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from uuid import uuid4

from common import ratio_of_medians

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis

NEEDED = "from langchain_core.messages import AIMessage; import redis, pydantic"
COMMAND = (
    "import contextlib, io\nfrom langchain_workingmem.cli import app\n"
    "with contextlib.redirect_stdout(io.StringIO()): app({words!r}, standalone_mode=False)"
)
PAIRS = [  # what users write, and what it cannot do without
    ("import langchain_workingmem", "pass"),
    ("from langchain_workingmem import Memory", NEEDED),
    (f"{NEEDED}; from langchain_workingmem import Memory", NEEDED),
    ("from langchain_workingmem import Memory; Memory()", NEEDED),
    ("from langchain_workingmem import Memory, RecallOptions, LocalEmbeddings", NEEDED),
    ("from langchain_workingmem.store import RedisMemoryStore", "import langgraph.store.base"),
    ("from langchain_workingmem.middleware import MemoryMiddleware", "import langchain.agents.middleware"),
    (COMMAND.format(words=["--help"]), "import typer"),
    (COMMAND.format(words=["threads", "--help"]), "import typer"),
    (COMMAND.format(words=["threads"]), "import typer; from langchain_workingmem import Memory; Memory()"),
]
PARTS = (  # what is loaded later, if at all
    "import redis.asyncio",
    "import redisvl.query",
    "import numpy",
    "import langsmith.run_helpers",
    "import langchain_core.callbacks.manager",
    "import tokenizers",
    "import wordllama",
)
FIRST = """
import sys
from time import process_time
times = [process_time()]
from langchain_workingmem import LocalEmbeddings, Memory, WorkingMemoryOptions
times.append(process_time())
memory = Memory(
    sys.argv[1], key_prefix=sys.argv[2], embeddings=LocalEmbeddings(), working_memory=WorkingMemoryOptions()
)
times.append(process_time())
memory.context("What is the name of my cat?", thread_id="t", user_id="u")
times.append(process_time())
memory.context("And who has to feed the dog tomorrow?", thread_id="t", user_id="u")
times.append(process_time())
print(*times)
"""
STEPS = ("import", "`Memory(...)`", "first context", "second context")


@dataclass
class Row:
    """Processes that run the same code."""

    code: str
    checkout: str | None = None  # whose package they import; None: the installed one
    arguments: tuple[str, ...] = ()
    times: list[float] = field(default_factory=list)  # of whole processes, in milliseconds
    steps: list[list[float]] = field(default_factory=list)  # what each of them has printed
    modules: int = 0

    def run(self) -> None:
        """Run one process."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        if self.checkout is not None:
            environment["PYTHONPATH"] = self.checkout
        command = [sys.executable, "-c", f"{self.code}\nimport sys; print(len(sys.modules))", *self.arguments]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        *steps, modules = subprocess.run(command, env=environment, capture_output=True, check=True).stdout.split(b"\n")[
            :-1
        ]
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.times.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        self.modules = int(modules)
        for line in steps:
            times = [1000 * float(time) for time in line.split()]
            self.steps.append([end - start for start, end in pairwise(times)])

    def step(self, number: int) -> list[float]:
        """Return the times of one step."""
        return [times[number] for times in self.steps]


def ratio(ours: list[float], theirs: list[float]) -> str:
    """Show a ratio with its interval."""
    found, low, high = ratio_of_medians(ours, theirs)
    return f"{found:.2f} [{low:.2f}, {high:.2f}]"


def _named(code: str) -> str:
    """Name a row: a command as people write it."""
    words = code.partition("app([")[2].partition("]")[0]
    return f"workingmem {words.replace(chr(39), '').replace(',', '')}" if words else code


def main() -> None:
    """Print three tables, and a fourth beside another checkout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=20, help="so many processes for each row, after one that compiles"
    )
    parser.add_argument("--before", help="the path of another checkout, to compare with")
    given = parser.parse_args()
    with EmbeddedRedis() as server:
        codes = dict.fromkeys((*(code for pair in PAIRS for code in pair), *(f"{NEEDED}; {part}" for part in PARTS)))
        plain = {code: Row(code) for code in codes}
        first = Row(FIRST, None, (server.url, uuid4().hex))
        before = [Row(code, given.before) for code, _ in PAIRS] if given.before else []
        before_first = Row(FIRST, given.before, (server.url, uuid4().hex))
        os.environ["REDIS_URL"] = server.url  # of the commands
        with Memory(server.url) as memory:
            memory.save_turn([("user", "hello")], thread_id="t", user_id="u")
        rows = [*plain.values(), first, *before, *([before_first] if before else [])]
        for row in rows:  # compiles, and makes the indexes
            row.run()
            row.times, row.steps = [], []
        for _ in range(given.rounds):
            for row in random.sample(rows, len(rows)):
                row.run()
    print("| import | ms | modules | beside | ms | modules | ratio |")
    print("| --- | --: | --: | --- | --: | --: | --: |")
    for code, needed in PAIRS:
        ours, theirs = plain[code], plain[needed]
        print(
            f"| `{_named(code)}` | {median(ours.times):.0f} | {ours.modules} | `{needed}` | {median(theirs.times):.0f} | "
            f"{theirs.modules} | {ratio(ours.times, theirs.times)} |"
        )
    print(f"\n| beside `{NEEDED}` | adds ms | modules |")
    print("| --- | --: | --: |")
    base = plain[NEEDED]
    for part in PARTS:
        more = plain[f"{NEEDED}; {part}"]
        print(f"| `{part}` | {median(more.times) - median(base.times):.0f} | {more.modules - base.modules} |")
    print("\n| first turn with `LocalEmbeddings` | ms |" + (" before | ratio |" if before else ""))
    print("| --- | --: |" + (" --: | --: |" if before else ""))
    for number, name in enumerate((*STEPS, "whole process")):
        mine, other = (row.step(number) if number < len(STEPS) else row.times for row in (first, before_first))
        beside = f" {median(other):.1f} | {ratio(mine, other)} |" if before else ""
        print(f"| {name} | {median(mine):.1f} |{beside}")
    if before:
        print("\n| import | ms | before | ratio |\n| --- | --: | --: | --: |")
    for row in before:
        ours = plain[row.code]
        code = _named(row.code)
        times = f"{median(ours.times):.0f} | {median(row.times):.0f} | {ratio(ours.times, row.times)}"
        print(f"| `{code}`, and before | {times} |")


if __name__ == "__main__":
    main()
