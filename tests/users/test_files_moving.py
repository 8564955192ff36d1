"""Files while their owner goes: merged into another one, or deleted, beside writers in other processes, or interrupted."""

from __future__ import annotations

import signal
from time import monotonic
from typing import Any

import pytest
import redis

from langchain_workingmem import Memory
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.archives import unsealed
from tests.helpers.embedded import read
from tests.helpers.programs import Forked
from tests.helpers.types import Make
from tests.users.guests import GUEST, USER, naming
from tests.users.test_files import holding, stock, tree
from tests.users.test_merging_races import MERGER, program

G: Any = {"user_id": GUEST}
U: Any = {"user_id": USER}


def texts(memory: Memory, owner: str = USER) -> dict[str, str]:
    records = [one for one in unsealed(memory.users.export(owner)) if one["kind"] == "file"]
    contents = [one.get("content", one.get("base64")) for one in records]
    return {one["path"]: text for one, text in zip(records, contents, strict=True) if text is not None}


def live(memory: Memory) -> None:
    """Let the guest have files that the user has alike, otherwise, and not at all."""
    stock(memory, GUEST, "guest")
    memory.files.write("/dir/x.md", "x", **G)
    memory.files.write("/alike.md", "both", **G)
    memory.files.write("/alike.md", "both", **U)
    memory.files.write("/notes/a.md", "the user's", **U)
    memory.files.write("/dir", "a file", **U)
    memory.files.write("/gone.md", "the user's", **U)
    memory.files.write("/b (merged).bin", "in the way", **U)
    memory.files.write("/b.bin", b"the user's", **U)


# ---------------------------------------------------------------------- merges


def test_the_user_has_all_files_of_the_guest_and_none_is_lost(make_memory: Make, raw: redis.Redis, prefix: str) -> None:
    memory = make_memory()
    live(memory)
    stock(memory, "third")
    guest, third = tree(memory, GUEST), tree(memory, "third")
    report = memory.users.merge(GUEST, into=USER)
    assert report.files == 5
    assert report.files_renamed == {
        "/notes/a.md": "/notes/a (merged).md",
        "/dir/x.md": "/dir (merged)/x.md",
        "/b.bin": "/b (merged) (merged).bin",
    }
    assert texts(memory) == {
        "/alike.md": "both",
        "/b (merged) (merged).bin": "AP9ndWVzdA==",
        "/b (merged).bin": "in the way",
        "/b.bin": "dGhlIHVzZXIncw==",
        "/dir": "a file",
        "/dir (merged)/x.md": "x",
        "/empty": "",
        "/gone.md": "the user's",
        "/notes/a (merged).md": "guest 2\nuni\n",
        "/notes/a.md": "the user's",
        "/was/now/in.md": "a directory",
    }
    rows = [(row.revision, row.at, row.by, row.what) for row in memory.files.history("/notes/a (merged).md", **U)]
    assert rows == [(row.revision, row.at, row.by, row.what) for row, _ in guest["/notes/a.md"]]
    assert memory.files.revert("/gone (merged).md", 1, **U).info.revision == 3  # the guest had deleted it
    assert naming(raw, prefix, GUEST) == []
    assert tree(memory, "third") == third
    assert memory.doctor().level == "ok"


# ---------------------------------------------------------------------- processes

WRITER = """
import select, sys
from time import monotonic
from langchain_workingmem import Memory, UserDeletedError
url, prefix, owner, name = sys.argv[1:]
with Memory(url, key_prefix=prefix) as memory:
    print("ready", flush=True)
    for number in range(1_000_000):
        if select.select([sys.stdin], [], [], 0)[0]:  # closed: a busy machine has let the merge pass between two calls
            break
        path, begin = f"/{name}/{number}.md", monotonic()
        try:
            memory.files.write(path, "first", user_id=owner)
            memory.files.edit(path, "first", "second", user_id=owner, by=name)
        except (UserDeletedError, LookupError):  # the deletion or the merge came between the two
            continue
        print(path, begin, monotonic(), flush=True)
"""


def begun(server: EmbeddedRedis, prefix: str, owner: str) -> list[Forked]:
    writers = [program(WRITER, server.url, prefix, owner, name) for name in ("ann", "bob")]
    for writer in writers:
        assert read(writer) == "ready"
        assert read(writer).startswith("/")
    return writers


def rest_of(writers: list[Forked]) -> list[str]:
    """Return the lines that writers have told since they were read, but the first: what was read has a part of it."""
    return [line for writer in writers for line in writer.communicate()[0].splitlines()[1:]]


@pytest.mark.programs
def test_two_processes_that_write_lose_what_was_before_a_deletion_and_nothing_else(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory()
    writers = begun(server, prefix, "u")
    for _ in range(2):
        for writer in writers:  # some are written between the deletions
            for _ in range(5):
                read(writer)
        begin = monotonic()
        assert memory.users.delete("u").verified
        end = monotonic()
    for writer in writers:
        for _ in range(5):
            read(writer)
        writer.send_signal(signal.SIGKILL)
    told = [line.split() for line in rest_of(writers) if line.count(" ") == 2]
    found = texts(memory, "u")
    assert set(found.values()) <= {"first", "second"}
    for path, first, last in told:
        if float(first) > end:
            assert found[path] == "second", "acknowledged after the deletion, and lost"
        elif float(last) < begin:
            assert path not in found, "acknowledged before the deletion, and still there"
    assert memory.users.delete("u").verified
    assert holding(raw, prefix, "second") == []


@pytest.mark.programs
def test_a_process_that_is_killed_half_way_leaves_what_the_next_call_ends(
    make_memory: Make, server: EmbeddedRedis, raw: redis.Redis, prefix: str
) -> None:
    memory = make_memory()
    for number in range(250):
        memory.files.write(f"/{number:03}.md", f"text {number}", **G)
    victim = program(MERGER, server.url, prefix)
    assert read(victim) == "ready"
    while not memory.files.list("/", **U):
        pass
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert 0 < len(memory.files.list("/", **U)) < 250  # it was half-way
    report = memory.users.merge(GUEST, into=USER)
    assert 0 < report.files < 250
    assert report.files_renamed == {}
    assert texts(memory) == {f"/{number:03}.md": f"text {number}" for number in range(250)}
    assert naming(raw, prefix, GUEST) == []
