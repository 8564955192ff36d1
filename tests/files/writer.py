"""A process with some writers, which count in one file and write lines into another: URL PREFIX NUMBERS SEED.

Before each call a line of JSON says what will be done, and behind it another one what came of it.
"""

from __future__ import annotations

import json
import random
import sys
import threading
from typing import Any

from langchain_workingmem import Memory
from langchain_workingmem.files import Files

OWNER = "team"
IDS: Any = {"user_id": OWNER}
COUNTERS, LINES = "/shared/counters", "/shared/lines"


def lines_of(files: Files, path: str) -> list[str]:
    return files.read(path, **IDS).text.split("\n")[:-1]


class Log:
    """What all processes have told: the count of each writer, and the lines of all."""

    def __init__(self, files: Files, writers: int) -> None:
        files.write(COUNTERS, "".join(f"writer {number}: 0\n-\n" for number in range(writers)), **IDS)
        files.write(LINES, "", **IDS)
        self.lines = [f"writer {number}: 0" for number in range(writers)]
        self.written: set[str] = set()
        self.open: dict[int, str] = {}  # steps that were begun: the lines that they make
        self.acknowledged = 0

    def add(self, told: list[dict[str, Any]]) -> None:
        for line in told:
            if "done" in line:
                self._apply(line["done"])
                self.acknowledged += 1
            else:
                assert line["writer"] not in self.open
                self.open[line["writer"]] = line["makes"]

    def _apply(self, writer: int) -> None:
        line = self.open.pop(writer)
        if line.startswith("writer"):
            self.lines[writer] = line
        else:
            self.written.add(line)

    def check(self, files: Files) -> None:
        """What is stored is what was acknowledged, and what had no reply has happened or not."""
        lines, written = lines_of(files, COUNTERS)[::2], lines_of(files, LINES)
        for writer, line in [*self.open.items()]:
            if line in (*lines, *written):
                self._apply(writer)
        self.open.clear()
        assert lines == self.lines
        assert files.read(COUNTERS, **IDS).revision == 1 + sum(int(line.split()[-1]) for line in lines)
        assert sorted(written) == sorted(self.written), "lost, or applied twice"


def work(files: Files, number: int, seed: str) -> None:
    """Write until the process is killed."""
    chance, made, count = random.Random(f"{number} {seed}"), 0, int(lines_of(files, COUNTERS)[2 * number].split()[-1])
    while True:
        made += 1
        counts = chance.random() < 0.5
        new = f"writer {number}: {count + 1}" if counts else f"{number}.{seed}.{made}"
        tell({"writer": number, "makes": new})
        if counts:
            files.edit(COUNTERS, f"writer {number}: {count}\n", f"{new}\n", **IDS)
            count += 1
        else:
            files.insert(LINES, 0, new, **IDS)
        tell({"done": number})


_telling = threading.Lock()


def tell(line: dict[str, Any]) -> None:
    with _telling:
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with Memory(sys.argv[1], key_prefix=sys.argv[2]) as memory:
        for number in sys.argv[3].split(","):
            threading.Thread(target=work, args=(memory.files, int(number), sys.argv[4])).start()
        threading.Event().wait()
