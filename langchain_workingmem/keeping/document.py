"""The document of a user, made of the rows of the user's threads and of what tool, program and person have set.

`kept` stands beside it: `base`, what others have set, `values`, what the document shows and from where, and `threads`, which rows it was
made of. A value that was said later holds, whatever came first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from langchain_workingmem._text.values import LATEST, check_depth
from langchain_workingmem.keeping.values import Leaf, leaves, with_values
from langchain_workingmem.options import WorkingMemoryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem.derived import Rows
    from langchain_workingmem.working_memory.document import Format

KIND = "keeping"  # of the rows


def _check_value(value: Any) -> Any:
    check_depth(json.dumps(value))
    orjson.dumps(value)  # raises for what a row cannot hold
    return value


Path = Annotated[str, Field(pattern="^/")]
Micros = Annotated[int, Field(ge=0, le=LATEST)]
Value = Annotated[Any, AfterValidator(_check_value)]


class Body(BaseModel):
    """The body of a row, as an archive has it: of a value, or of messages that are `read`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    at: Micros
    path: Path | None = None
    value: Value = None
    is_item: bool | None = None
    ids: Annotated[list[str] | None, Field(max_length=500)] = None
    read: Annotated[int | None, Field(ge=0, le=10_000)] = None

    @model_validator(mode="after")
    def _check(self) -> Body:
        signs_of_a_value = [self.path is not None, self.is_item is not None, self.ids is not None, self.read is None]
        if any(signs_of_a_value) != all(signs_of_a_value):
            raise ValueError("a row is of a value with path, is_item and ids, or of messages that are read")
        return self


class _Noted(BaseModel):
    """A value that is noted beside a document."""

    model_config = ConfigDict(strict=True, extra="forbid")

    value: Value
    is_item: bool
    since: Micros


class _Shown(_Noted):
    thread: str | None


class _Archived(BaseModel):
    """What is noted beside a document, as an archive has it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    base: dict[Path, _Noted]
    values: dict[Path, _Shown]
    threads: dict[str, Any]
    template: Annotated[str | None, Field(max_length=100_000)]


_ARCHIVED = TypeAdapter(_Archived)


@dataclass(slots=True)
class KeeperNotes:
    """What is noted beside a document."""

    base: dict[str, dict[str, Any]] = field(default_factory=dict)  # path -> value, is_item, since: what others have set
    values: dict[str, dict[str, Any]] = field(default_factory=dict)  # the same, and thread (None: others)
    threads: dict[str, dict[str, Any]] = field(default_factory=dict)  # thread -> revision, ids, expires
    template: str | None = None  # of the document; None: along a schema

    @classmethod
    def read(cls, text: str | None) -> KeeperNotes:
        """Read what `write` has written."""
        return cls(**json.loads(text)) if text else cls()

    def write(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def is_in(self, form: Format) -> bool:
        """Tell whether its paths are those of a format."""
        return not self.values or self.template == getattr(form, "template", None)

    def form(self) -> Format:
        """Return the format for a process that may have other options than the keeper; nothing is too large for it."""
        schema = {"type": "object"} if self.template is None else None
        return WorkingMemoryOptions(schema=schema, template=self.template, max_bytes=2**30).format


def notes_from_archive(text: str) -> str:
    """Return the notes of an archive, without the rows that they came from: these get new ids. Raises what is wrong with them."""
    return KeeperNotes(**_ARCHIVED.validate_json(text).model_dump(exclude={"threads"})).write()


class Said(NamedTuple):
    """A value that was said, or set."""

    since: int
    id: int  # of the row
    thread: str  # "": others have set it
    leaf: Leaf


class RemadeDocument(NamedTuple):
    """A document that was made of rows."""

    text: str
    notes: KeeperNotes
    loses: bool  # older revisions may hold values of rows that have gone


def said_by_path(notes: KeeperNotes, shown: Mapping[str, Rows]) -> dict[str, list[Said]]:
    """Return by path all that was said or set, what was said last at the end."""
    by_path: dict[str, list[Said]] = {}
    for thread_id, rows in shown.items():
        for id, body in rows.rows.items():
            if "path" in body:
                leaf = Leaf(body["value"], body["is_item"])
                by_path.setdefault(body["path"], []).append(Said(body["at"], id, thread_id, leaf))
    for path, noted in notes.base.items():
        by_path.setdefault(path, []).append(Said(noted["since"], 0, "", Leaf(noted["value"], noted["is_item"])))
    for entries in by_path.values():
        entries.sort(key=lambda entry: entry[:3])
    return by_path


def nobody_else_changed(form: Format, text: str, notes: KeeperNotes) -> bool:
    """Tell whether nobody else has changed a document since it was made."""
    return {path: leaf.value for path, leaf in leaves(form, text).items()} == {
        path: noted["value"] for path, noted in notes.values.items()
    }


def with_changes_of_others(form: Format, text: str, notes: KeeperNotes, at: int) -> KeeperNotes:
    """Note what others have changed in a document since it was made; `at`: when it was written last."""
    current, base = leaves(form, text), dict(notes.base)
    for path, leaf in current.items():
        if (notes.values.get(path) or {}).get("value") != leaf.value:
            base[path] = {"value": leaf.value, "is_item": leaf.is_item, "since": at}
    for path in notes.values.keys() - current.keys():
        base[path] = {"value": None, "is_item": False, "since": at}
    return KeeperNotes(base, notes.values, notes.threads, getattr(form, "template", None))


def remake(
    form: Format,
    text: str,
    notes: KeeperNotes,
    shown: Mapping[str, Rows],
    *,
    at: int,
    expired: frozenset[str] = frozenset(),
    proposed: str | None = None,
    without: str | None = None,
) -> RemadeDocument:
    """Make the document anew of the rows that are shown now.

    Values of a thread that has `expired` stay, without their sources. `proposed`: the document as the keeper has just changed it, which
    has new values in their places. `without`: a path of which what others have set goes.
    """
    if not notes.is_in(form):  # the options have changed: what rows have given goes, and comes back where it fits
        text, notes = without_rows(text, notes), KeeperNotes(threads=notes.threads)
    notes = with_changes_of_others(form, text, notes, at)
    if without is not None:
        notes.base.pop(without, None)
    for path, noted in notes.values.items():  # what an expired thread has said, nobody can take back any more
        if noted["thread"] in expired and path not in notes.base:
            notes.base[path] = {"value": noted["value"], "is_item": noted["is_item"], "since": noted["since"]}
    said = said_by_path(notes, shown)
    latest = {path: entries[-1].leaf for path, entries in said.items()}  # by path what was said last
    text = text if proposed is None else proposed
    current = leaves(form, text)
    changes = {path: leaf for path, leaf in latest.items() if current.get(path, Leaf(None)).value != leaf.value}
    changes |= {path: Leaf(None, leaf.is_item) for path, leaf in current.items() if path not in latest}
    text = with_values(form, text, changes) if changes else text
    return RemadeDocument(text, _notes(form, text, notes, said, shown, at), _loses(notes, shown, expired))


def _notes(
    form: Format,
    text: str,
    notes: KeeperNotes,
    said: Mapping[str, list[Said]],
    shown: Mapping[str, Rows],
    at: int,
) -> KeeperNotes:
    """Return what is noted beside a document that was made of what was said, by path, and of rows."""
    values: dict[str, dict[str, Any]] = {}
    for path, leaf in leaves(form, text).items():
        last = said[path][-1] if path in said else Said(at, 0, "", leaf)
        source = (
            last.thread if last.leaf.value == leaf.value else ""
        )  # else what was said last does not fit into the document
        values[path] = {"value": leaf.value, "is_item": leaf.is_item, "since": last.since, "thread": source or None}
    # that others have taken a value away is noted while rows still say something there
    base = {path: noted for path, noted in notes.base.items() if noted["value"] is not None or len(said[path]) > 1}
    threads = {
        thread_id: {
            "revision": rows.revision,
            "ids": [id for id, body in rows.rows.items() if "path" in body],
            "expires": rows.expires,
        }
        for thread_id, rows in shown.items()
    }
    return KeeperNotes(base, values, threads, notes.template)


def _loses(notes: KeeperNotes, shown: Mapping[str, Rows], expired: frozenset[str]) -> bool:
    """Tell whether rows have gone since a document was made, so that older revisions may hold values of deleted messages."""
    before = ((id, thread["ids"]) for id, thread in notes.threads.items() if id not in expired)
    return any(id not in shown or not {*ids} <= shown[id].rows.keys() for id, ids in before)


def without_rows(text: str, notes: KeeperNotes) -> str:
    """Return a document without the values that rows have given."""
    removed = {path: Leaf(None, noted["is_item"]) for path, noted in notes.values.items() if noted["thread"]}
    return with_values(notes.form(), text, removed) if removed else text
