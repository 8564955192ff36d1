"""What holds of the stored files of an owner, whatever has happened to them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from langchain_workingmem._redis.keys import Keys
from langchain_workingmem.files.records import Note


def check_stored(raw: Any, prefix: str, owner: str, revisions: int = 10) -> None:
    """Recompute the numbers that are kept, and look for what belongs to nothing."""
    _, paths, texts, notes, _ = Keys(prefix).of_user(owner).files
    live = dict(member.split(b"\0", 1) for member in raw.zrange(paths, 0, -1))
    assert len(live) == raw.zcard(paths), "two notes of one file"
    contents, kept = raw.hgetall(texts), raw.hgetall(notes)
    count, size = int(kept.pop(b"count", 0)), int(kept.pop(b"bytes", 0))
    numbers: dict[bytes, set[int]] = defaultdict(set)
    newest, wanted = dict(live), set(live)
    for field, value in kept.items():
        path, is_older, number = field.partition(b"\0")
        note = Note.of(value)
        if not is_older:
            assert note.kind == "d"
            assert path not in live
            newest[path] = value
            continue
        assert note.revision == int(number)
        numbers[path].add(note.revision)
        if note.kind != "d":
            wanted.add(field)
            assert len(contents[field]) == note.size
    for name, value in newest.items():
        note = Note.of(value)
        assert len(contents.get(name, b"")) == note.size
        older = numbers.pop(name, set())
        assert older == set(range(note.revision - len(older), note.revision)), (name, older, note)
        assert len(older) <= revisions
    assert not numbers, "revisions of no file"
    assert contents.keys() == wanted, contents.keys() ^ wanted
    assert (count, size) == (len(live), sum(map(len, contents.values())))
    for name in live:
        assert not any(name.startswith(other + b"/") for other in live), "a file below a file"
