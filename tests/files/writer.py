"""A process with some writers, which change a file of their own and some that all share, and tell what they do.

python -m tests.files.writer <url> <prefix> <numbers of the writers> <seed>

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
COUNTERS, SHARED = "/shared/counters", "/shared/lines"
Own = dict[str, str]  # the file of a writer, if it has one: its text by its path


def apply(own: Own, step: dict[str, Any]) -> Own:
    """Do a step with a dictionary."""
    path = step["path"]
    match step["what"]:
        case "write":
            return {path: step["text"]}
        case "edit":
            return {path: own[path].replace(step["old"], step["new"])}
        case "rename":
            return {step["to"]: own[path]}
        case "delete":
            return {}
    return own


def perform(files: Files, step: dict[str, Any]) -> Any:
    """Do a step with Redis."""
    path = step["path"]
    ids: dict[str, Any] = {"user_id": OWNER, "by": f"writer {step['writer']}"}
    match step["what"]:
        case "write":
            return files.write(path, step["text"], **ids)
        case "edit" | "count":
            return files.edit(path, step["old"], step["new"], **ids)
        case "line":
            return files.insert(path, 0, step["text"], **ids)
        case "delete":
            return files.delete(path, **ids)
        case "rename":
            return files.rename(path, step["to"], **ids)


def stored_of(files: Files, writer: int) -> Own:
    found = files.glob("**", path=f"/own/{writer}", user_id=OWNER)
    return {info.path: files.read(info.path, user_id=OWNER).text for info in found}


def has_happened(files: Files, step: dict[str, Any], own: Own) -> bool:
    """Tell whether a step whose reply was lost has happened; what is stored is how it was before or after."""
    if step["what"] in ("count", "line"):
        lines = files.read(step["path"], user_id=OWNER).text.split("\n")
        return step.get("new", step.get("text", "")).strip("\n") in lines
    now = stored_of(files, step["writer"])
    assert now in (own, apply(own, step)), (step, own, now)
    return now != own


class Log:
    """What all processes have told: the file of each writer, its count, and the lines of all."""

    def __init__(self, files: Files, writers: int) -> None:
        files.write(COUNTERS, "".join(f"writer {number}: 0\n-\n" for number in range(writers)), user_id=OWNER)
        files.write(SHARED, "", user_id=OWNER)
        self.own: list[Own] = [{} for _ in range(writers)]
        self.counts = [0] * writers
        self.lines: set[str] = set()
        self.open: dict[int, dict[str, Any]] = {}  # steps that were begun
        self.acknowledged = 0

    def add(self, told: list[dict[str, Any]]) -> None:
        for line in told:
            if "done" in line:
                self._apply(self.open.pop(line["done"]))
                self.acknowledged += 1
            else:
                assert line["writer"] not in self.open
                self.open[line["writer"]] = line

    def _apply(self, step: dict[str, Any]) -> None:
        writer = step["writer"]
        self.counts[writer] += step["what"] == "count"
        if step["what"] == "line":
            self.lines.add(step["text"])
        self.own[writer] = apply(self.own[writer], step)

    def settle(self, files: Files) -> None:
        """See which of the steps that had no reply have happened."""
        for step in self.open.values():
            if has_happened(files, step, self.own[step["writer"]]):
                self._apply(step)
        self.open.clear()

    def check(self, files: Files) -> None:
        """What is stored is what was acknowledged."""
        assert [stored_of(files, number) for number in range(len(self.own))] == self.own
        counters = files.read(COUNTERS, user_id=OWNER)
        assert counters.text.split("\n")[:-1:2] == [f"writer {at}: {count}" for at, count in enumerate(self.counts)]
        assert counters.revision == 1 + sum(self.counts)
        lines = files.read(SHARED, user_id=OWNER).text.split("\n")[:-1]
        assert len(lines) == len(set(lines)), "applied twice"
        assert set(lines) == self.lines


class Writer:
    """One writer, as a thread."""

    def __init__(self, files: Files, number: int, seed: int) -> None:
        self.files, self.number = files, number
        self.random = random.Random(f"{number} {seed}")
        self.token = f"{number}.{seed}."
        self.made = 0

    def work(self) -> None:
        """Write until the process is killed."""
        own = stored_of(self.files, self.number)
        while True:
            step = {**self.next_step(own), "writer": self.number}
            tell(step)
            perform(self.files, step)
            own = apply(own, step)
            tell({"done": self.number})

    def next_step(self, own: Own) -> dict[str, Any]:
        self.made += 1
        new = f"{self.token}{self.made}"
        what = self.random.choice(["write", "edit", "edit", "delete", "rename", "count", "count", "line"])
        if what == "count":
            text = self.files.read(COUNTERS, user_id=OWNER).text
            begins = f"writer {self.number}: "
            (line,) = [line for line in text.split("\n") if line.startswith(begins)]
            count = int(line.removeprefix(begins)) + 1
            return {"what": "count", "path": COUNTERS, "old": f"{line}\n", "new": f"{begins}{count}\n"}
        if what == "line":
            return {"what": "line", "path": SHARED, "text": new}
        for path, text in own.items():
            step = {"what": what, "path": path}
            more = {"edit": {"old": text.split("\n")[1], "new": new}, "rename": {"to": f"/own/{self.number}/{new}/x"}}
            return {**step, **more.get(what, {"text": f"again\n{new}\nlast\n"})}
        return {"what": "write", "path": f"/own/{self.number}/{new}", "text": f"first\n{new}\nlast\n"}


_telling = threading.Lock()


def tell(line: dict[str, Any]) -> None:
    with _telling:
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()


def main(url: str, prefix: str, numbers: str, seed: str) -> None:
    with Memory(url, key_prefix=prefix) as memory:
        writers = [Writer(memory.files, int(number), int(seed)) for number in numbers.split(",")]
        threads = [threading.Thread(target=writer.work) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
