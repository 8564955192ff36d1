"""What does importing cost, beside what cannot be avoided?

Each import runs in processes of its own, in turns, and the least time of such a process counts, Python's own start included.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys

PAIRS = [  # what users write, and what it cannot do without
    ("import langchain_workingmem", "import langchain_core.messages"),
    ("from langchain_workingmem import Memory", "import langchain_core.messages"),
    ("from langchain_workingmem import Memory, RecallOptions, LocalEmbeddings", "import langchain_core.messages"),
    ("from langchain_workingmem.store import RedisMemoryStore", "import langgraph.store.base"),
    ("from langchain_workingmem.middleware import MemoryMiddleware", "import langchain.agents.middleware"),
]


def measured(code: str) -> tuple[float, int]:
    """Run a Python process, and return its processor time in milliseconds and how many modules it loads."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", f"{code}\nimport sys; print(len(sys.modules))"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    loaded = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), int(loaded)


def main() -> None:
    """Print a row per import."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="the least of so many runs counts; the first compiles")
    rounds = parser.parse_args().rounds
    codes = dict.fromkeys(code for pair in PAIRS for code in pair)
    runs = [{code: measured(code) for code in codes} for _ in range(rounds)]
    least = {code: min(run[code] for run in runs) for code in codes}
    print("| import | ms | modules | beside | ms | modules | ratio |")
    print("| --- | --: | --: | --- | --: | --: | --: |")
    for ours, theirs in PAIRS:
        (ms, modules), (their_ms, their_modules) = least[ours], least[theirs]
        print(
            f"| `{ours}` | {ms:.0f} | {modules} | `{theirs}` | {their_ms:.0f} | {their_modules} | {ms / their_ms:.2f} |"
        )


if __name__ == "__main__":
    main()
