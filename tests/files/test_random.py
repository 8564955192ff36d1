"""Random operations on files against a plain dictionary of texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import FileOptions, Memory
from langchain_workingmem.errors import FileEditError, FileMissingError, FilePathError
from tests.files.checks import check_stored
from tests.helpers.examples import examples
from tests.helpers.types import Make

PATHS = ["/a", "/a-", "/a/b", "/a/c", "/a/d/e", "/f", "/f/b", "/g/h"]
TEXTS = ["", "one\n", "one\ntwo\n", "two\none\ntwo", "\n\n", "ünï %1\r\n\0\n"]


@dataclass
class Row:
    """A file: the number of its newest revision, and the contents that are kept, None where it was deleted."""

    number: int = 0
    kept: list[str | None] = field(default_factory=list)

    @property
    def text(self) -> str | None:
        return self.kept[-1] if self.kept else None


class Plain:
    """What `memory.files` does, with dictionaries."""

    def __init__(self, revisions: int) -> None:
        self.rows: dict[str, Row] = {}
        self.revisions = revisions

    def live(self, below: str = "") -> list[str]:
        return sorted(path for path, row in self.rows.items() if row.text is not None and path.startswith(below))

    def free(self, path: str) -> None:
        """Refuse a path that is a directory, or below a file."""
        if self.live(f"{path}/") or any(path.startswith(f"{other}/") for other in self.live()):
            raise FilePathError(path, "", remedy="")

    def put(self, path: str, text: str | None) -> None:
        row = self.rows.get(path) or Row()
        if text is not None and row.text is None:
            self.free(path)
        if text is None or text != row.text:
            self.rows[path] = Row(row.number + 1, [*row.kept, text][-self.revisions - 1 :])

    def text(self, path: str) -> str:
        if path not in self.live():
            raise FilePathError(path, "", remedy="") if self.live(f"{path}/") else FileMissingError(path)
        return self.rows[path].text or ""

    def write(self, path: str, text: str) -> None:
        self.put(path, text)

    def edit(self, path: str, old: str, new: str, *, replace_all: bool) -> None:
        text = self.text(path)
        if (count := text.count(old)) == 0 or (count > 1 and not replace_all):
            raise FileEditError(path, "", remedy="")
        self.put(path, text.replace(old, new))

    def insert(self, path: str, line: int, new: str) -> None:
        lines = self.text(path).removesuffix("\n").split("\n") if self.text(path) else []
        if line > len(lines):
            raise FileEditError(path, "", remedy="")
        at = len(lines) if line < 0 else line
        self.put(path, "".join(f"{one}\n" for one in [*lines[:at], new.removesuffix("\n"), *lines[at:]]))

    def below(self, path: str) -> list[str]:
        """The files that a path stands for."""
        found = self.live("/" if path == "/" else f"{path}/")
        return [path, *found] if path in self.live() else found

    def delete(self, path: str, *, purge: bool) -> int:
        found = self.below(path)
        gone = [
            one for one in self.rows if one == path or (path not in found and one.startswith(f"{path.rstrip('/')}/"))
        ]
        if not found and not (purge and gone):
            raise FileMissingError(path)
        for one in gone if purge else found:
            if purge:
                del self.rows[one]
            else:
                self.put(one, None)
        return len(found)

    def rename(self, path: str, new: str) -> int:
        if path == new or new.startswith(f"{path}/"):
            raise FilePathError(new, "", remedy="")
        if not (found := self.below(path)):
            raise FileMissingError(path)
        if self.below(new):
            raise FilePathError(new, "", remedy="")
        self.free(new)
        for one in found:
            old, target = self.rows[one], new + one[len(path) :]
            there = self.rows.get(target) or Row()
            own = old.kept[-self.revisions :]
            start = there.number if there.kept else old.number - len(own)
            kept = [*there.kept, *own, old.text][-self.revisions - 1 :]
            self.rows[target] = Row(start + len(own) + 1, kept)
            self.rows[one] = Row(old.number + 1, [None])
        return len(found)

    def revert(self, path: str, revision: int) -> None:
        row = self.rows.get(path) or Row()
        at = revision - (row.number - len(row.kept) + 1)
        if not 0 <= at < len(row.kept) or (text := row.kept[at]) is None:
            raise FileMissingError(path)
        self.put(path, text)


paths, texts = st.sampled_from(PATHS), st.sampled_from(TEXTS)
STEPS = st.one_of(
    st.tuples(st.just("write"), paths, texts),
    st.tuples(st.just("write"), paths, texts),
    st.tuples(
        st.just("edit"), paths, st.sampled_from(["one", "two", "\n", "\0"]), st.sampled_from(["2", "%0"]), st.booleans()
    ),
    st.tuples(st.just("insert"), paths, st.integers(-1, 3), st.sampled_from(["", "new", "a\nb\n"])),
    st.tuples(st.just("delete"), st.sampled_from([*PATHS, "/"]), st.booleans()),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("revert"), paths, st.integers(1, 6)),
)


def perform(files: Any, name: str, path: str, *rest: Any, **owner: Any) -> Any:
    flag = {"edit": "replace_all", "delete": "purge"}.get(name)
    if flag:
        *rest, value = rest  # type: ignore[assignment]
        owner[flag] = value
    try:
        return getattr(files, name)(path, *rest, **owner)
    except (FilePathError, FileMissingError, FileEditError) as error:
        return type(error)


def compare(memory: Memory, plain: Plain, owner: str) -> None:
    """Everything that can be read is what the dictionary says."""
    files = memory.files
    ids: dict[str, Any] = {"user_id": owner}
    found = [info.path for info in files.glob("**", **ids)]
    assert sorted(found) == plain.live()
    assert files.usage(**ids).files == len(found)
    for path in PATHS:
        row = plain.rows.get(path)
        info = {one.path: one for one in files.list(path.rpartition("/")[0] or "/", **ids)}.get(path)
        if row is None:
            with pytest.raises(FileMissingError):
                files.history(path, **ids)
            continue
        numbers = [one.revision for one in files.history(path, **ids)]
        assert numbers == list(range(row.number, row.number - len(row.kept), -1))
        for number, text in zip(reversed(numbers), row.kept, strict=True):
            if text is not None:
                assert files.read(path, revision=number, **ids).content == text
        if row.text is not None:
            assert info is not None
            assert (info.revision, info.size) == (row.number, len(row.text.encode()))
            hits = [(hit.line, hit.text) for hit in files.grep("o", path=path, **ids)]
            assert hits == [(at, one) for at, one in enumerate(row.text.split("\n"), 1) if "o" in one]


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("revisions", [1, 3])
def test_files_are_a_dictionary_of_texts_whose_revisions_are_kept(
    make_memory: Make, raw: Any, prefix: str, revisions: int
) -> None:
    memory = make_memory(files=FileOptions(revisions=revisions))

    @examples(30, server=True)
    @given(st.lists(STEPS, min_size=5, max_size=25))
    def run(steps: list[Any]) -> None:
        owner, plain = uuid4().hex, Plain(revisions)
        for step in steps:
            if step[0] == "rename" and step[1] not in plain.live() and plain.below(step[2]):
                continue  # a directory into one that exists: files move as long as none is in the way
            told, wanted = perform(memory.files, *step, user_id=owner), perform(plain, *step)
            assert told == wanted or step[0] not in ("delete", "rename") or isinstance(told, type), step
            assert isinstance(wanted, type) == isinstance(told, type), (step, told, wanted)
            if isinstance(wanted, type):
                assert told is wanted, step
            check_stored(raw, prefix, owner, revisions)
        compare(memory, plain, owner)

    run()
