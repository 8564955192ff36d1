"""One of several processes that keep the same user at once.

python -m tests.keeping.worker <url> <key prefix> <number>
"""

from __future__ import annotations

import random
import sys

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.keeping.keeper import runs
from tests.keeping.application import FACTS, THREADS, USER, Person
from tests.keeping.scripted import knows


def main(url: str, prefix: str, number: str) -> None:
    runs.POLL = 0.01
    keeper = WorkingMemoryOptions(schema=Person, keeper=knows(FACTS), background=False)
    memory = Memory(url, key_prefix=prefix, working_memory=keeper)
    chance = random.Random(number)
    for thread in chance.sample(THREADS, len(THREADS)):
        memory.working_memory.keep(thread, user_id=USER)
        sys.stdout.write("kept\n")
        sys.stdout.flush()
    memory.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
