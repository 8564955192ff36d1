"""A process with some writers, which change files of their own and some that all share, and tell what they do.

python -m tests.files.writer <url or directory> <prefix> <numbers of the writers> <seed> [<seconds>]

Before each call a line of JSON says what will be done, and behind it another one what came of it.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import threading
import time
from collections import defaultdict
from typing import Any

from langchain_workingmem import Memory, RedisConnectionError
from langchain_workingmem.files import Files

OWNER = "team"
COUNTERS, SHARED = "/shared/counters", "/shared/lines"
NAMES = ["a", "b", "d/c", "d/e/f"]
Texts = dict[str, str]  # by path


def digest(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()[:12]


def apply(texts: Texts, step: dict[str, Any]) -> Texts:
    """Do a step with a dictionary."""
    path, found = step["path"], dict(texts)
    match step["what"]:
        case "write":
            found[path] = step["text"]
        case "edit":
            found[path] = found[path].replace(step["old"], step["new"])
        case "delete":
            found = {name: text for name, text in texts.items() if name != path and not name.startswith(f"{path}/")}
        case "rename":
            found = {
                step["to"] + name[len(path) :] if name == path or name.startswith(f"{path}/") else name: text
                for name, text in texts.items()
            }
    return found


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


def stored_below(files: Files, path: str) -> Texts:
    found = files.glob("**", path=path, user_id=OWNER)
    return {info.path: str(files.read(info.path, user_id=OWNER).content) for info in found}


class Log:
    """What all processes have told: the texts of each writer, its count and its lines."""

    def __init__(self, writers: int) -> None:
        self.texts: list[Texts] = [{} for _ in range(writers)]
        self.counts = [0] * writers
        self.lines: set[str] = set()
        self.open: dict[int, dict[str, Any]] = {}  # steps that were begun
        self.reads: dict[str, dict[int, str]] = defaultdict(dict)  # a digest by revision
        self.acknowledged = 0

    def add(self, told: list[dict[str, Any]]) -> None:
        for line in told:
            if "read" in line:
                path, revision, seen = line["read"]
                assert self.reads[path].setdefault(revision, seen) == seen, "two states of one revision"
            elif "done" in line:
                step = self.open.pop(line["done"])
                if line["happened"]:
                    self._apply(step)
                    self.acknowledged += 1
            else:
                assert line["writer"] not in self.open
                self.open[line["writer"]] = line

    def _apply(self, step: dict[str, Any]) -> None:
        writer = step["writer"]
        if step["what"] == "count":
            self.counts[writer] += 1
        elif step["what"] == "line":
            self.lines.add(step["text"])
        else:
            self.texts[writer] = apply(self.texts[writer], step)

    def settle(self, files: Files) -> None:
        """See which of the steps that had no reply have happened."""
        for step in self.open.values():
            if has_happened(files, step, self.texts[step["writer"]]):
                self._apply(step)
        self.open.clear()

    def check(self, files: Files) -> None:
        """What is stored is what was acknowledged, and each state that was read is one that was written."""
        for number, texts in enumerate(self.texts):
            assert stored_below(files, f"/own/{number}") == texts
        counters = files.read(COUNTERS, user_id=OWNER)
        assert counters.text.split("\n")[:-1:2] == [
            f"writer {number}: {count}" for number, count in enumerate(self.counts)
        ]
        assert counters.revision == 1 + sum(self.counts)
        lines = files.read(SHARED, user_id=OWNER).text.split("\n")[:-1]
        assert len(lines) == len(set(lines)), "applied twice"
        assert set(lines) == self.lines
        for path, seen in self.reads.items():
            for one in files.history(path, user_id=OWNER):
                kept = files.read(path, revision=one.revision, user_id=OWNER)
                assert seen.get(one.revision, digest(kept.text)) == digest(kept.text)


def has_happened(files: Files, step: dict[str, Any], texts: Texts) -> bool:
    """Tell whether a step whose reply was lost has happened; what is stored is how it was before or after."""
    if step["what"] in ("count", "line"):
        lines = files.read(step["path"], user_id=OWNER).text.split("\n")
        return step.get("new", step.get("text", "")).strip("\n") in lines
    now = stored_below(files, f"/own/{step['writer']}")
    assert now in (texts, apply(texts, step)), (step, texts, now)
    return now != texts


class Writer:
    """One writer, as a thread."""

    def __init__(self, files: Files, number: int, seed: int) -> None:
        self.files, self.number = files, number
        self.random = random.Random(f"{number} {seed}")
        self.token = f"{number}.{seed}."
        self.made = 0

    def work(self, until: float) -> None:
        texts = stored_below(self.files, f"/own/{self.number}")
        while time.monotonic() < until:
            step = {**self.next_step(texts), "writer": self.number}
            tell(step)
            try:
                perform(self.files, step)
                happened = True
            except RedisConnectionError:
                happened = self.look(step, texts)
            if happened:
                texts = apply(texts, step)
            tell({"done": self.number, "happened": happened})
            if self.random.random() < 0.3:
                self.read()

    def look(self, step: dict[str, Any], texts: Texts) -> bool:
        while True:
            try:
                return has_happened(self.files, step, texts)
            except RedisConnectionError:
                time.sleep(0.05)

    def read(self) -> None:
        try:
            for path in (COUNTERS, SHARED):
                found = self.files.read(path, user_id=OWNER)
                tell({"read": [path, found.revision, digest(found.text)]})
        except RedisConnectionError:
            return

    def new(self) -> str:
        self.made += 1
        return f"{self.token}{self.made}"

    def next_step(self, texts: Texts) -> dict[str, Any]:
        own, what = (
            f"/own/{self.number}",
            self.random.choice(["write", "edit", "edit", "delete", "rename", "count", "count", "line"]),
        )
        if what == "count":
            return self.count_step()
        if what == "line":
            return {"what": "line", "path": SHARED, "text": self.new()}
        if what == "write" or not texts:
            free = [name for name in NAMES if f"{own}/{name}" in texts or not self._in_the_way(texts, f"{own}/{name}")]
            path = f"{own}/{self.random.choice(free or ['g'])}"
            return {"what": "write", "path": path, "text": f"first\n{self.new()}\nlast\n" * self.random.randint(1, 3)}
        path = self.random.choice(sorted(texts))
        if what == "edit":
            return self.edit_step(path, texts[path])
        if what == "delete" and len(texts) > 1:
            return {"what": "delete", "path": path}
        return {"what": "rename", "path": path, "to": f"{own}/n{self.new()}"}

    def edit_step(self, path: str, text: str) -> dict[str, Any]:
        lines = text.split("\n")
        unique = [line for line in lines if line and text.count(line) == 1]
        if not unique:
            return {"what": "write", "path": path, "text": f"{self.new()}\n"}
        return {"what": "edit", "path": path, "old": self.random.choice(unique), "new": self.new()}

    def count_step(self) -> dict[str, Any]:
        while True:
            try:
                lines = self.files.read(COUNTERS, user_id=OWNER).text.split("\n")
            except RedisConnectionError:
                time.sleep(0.05)
                continue
            begins = f"writer {self.number}: "
            (line,) = [line for line in lines if line.startswith(begins)]
            count = int(line.removeprefix(begins))
            return {"what": "count", "path": COUNTERS, "old": f"{line}\n", "new": f"{begins}{count + 1}\n"}

    @staticmethod
    def _in_the_way(texts: Texts, path: str) -> bool:
        return any(path.startswith(f"{name}/") or name.startswith(f"{path}/") for name in texts)


_telling = threading.Lock()


def tell(line: dict[str, Any]) -> None:
    with _telling:
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()


def open_memory(place: str, prefix: str) -> Memory:
    return Memory(place, key_prefix=prefix) if "://" in place else Memory.embedded(place, key_prefix=prefix)


def main(place: str, prefix: str, numbers: str, seed: str, seconds: str = "600") -> None:
    memory, until = open_memory(place, prefix), time.monotonic() + float(seconds)
    writers = [Writer(memory.files, int(number), int(seed)) for number in numbers.split(",")]
    threads = [threading.Thread(target=writer.work, args=(until,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
