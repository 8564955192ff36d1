"""The format of archives: header, the base of all records, and what optional rooms add.

An optional room subclasses `Record` for its kinds of records when it is imported.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from langchain_workingmem._redis.codec import UNREADABLE as UNREADABLE  # noqa: PLC0414 - importers take it from here
from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._redis.scripts import count_bytes
from langchain_workingmem._redis.state import wing
from langchain_workingmem._text.clock import LATEST, to_micros
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langchain_workingmem._engine.plan import Argument, Plan

T = TypeVar("T")
FORMAT, VERSION = "langchain-workingmem", 1
KINDS = ("thread", "message", "rows", "working_memory", "file")  # of the records after the header
END = "end"  # of the last record, which says how many there are of each kind
# The errors that reading a record of any shape may raise.
KEEP_ORDER = "keep the order of the export"


def header(user_id: str | None = None) -> dict[str, Any]:
    """Return the first record; without a user, the caller of the import names it."""
    return {"kind": "header", "format": FORMAT, "version": VERSION, "user_id": user_id}


class Record(BaseModel):
    """A record of an archive, or a part of one. Validation is the check of an import; its context is the `Import`."""

    model_config = ConfigDict(strict=True, defer_build=True)

    def __init_subclass__(cls, kind: str = "") -> None:
        """Register the model of a kind of record."""
        super().__init_subclass__()
        MODELS.update({kind: cls} if kind else {})

    @classmethod
    def check(cls, load: Any) -> Plan[None]:  # noqa: ARG003
        """Check all records of this kind against what is stored, before the first write."""
        yield from ()

    def write(self, load: Any) -> Plan[None]:
        """Write what is not stored yet; `load` is the `Import`."""
        raise NotImplementedError


MODELS: dict[str, type[Record]] = {}  # by kind


def model_of(kind: str) -> type[Record]:
    """Return the model of a kind of record; a wing may have it."""
    if kind not in MODELS:
        wing("files")
    return MODELS[kind]


def check_size(arguments: Iterable[Argument], most: int) -> None:
    """Raise `OptionError` when a record takes more bytes than a step can."""
    if (size := count_bytes(arguments)) > most:
        raise OptionError(f"the record takes {size:,} bytes, {most:,} at most", remedy="leave something out")


def _check_id(value: Any, info: Any) -> str:
    return check_id(value, info.field_name)


def _check_thread(value: Any, info: Any) -> Any:
    before = info.context.thread
    if before is None or value != before:
        raise OptionError(f"thread_id is {value!r}, the thread before it is {before!r}", remedy=KEEP_ORDER)
    return value


def _micros(time: Any) -> int:
    if not isinstance(time, str):
        raise OptionError(f"{time!r} is not a time", remedy="use ISO 8601")
    micros = to_micros(datetime.fromisoformat(time))
    if not 0 < micros < LATEST:
        raise OptionError(f"{time!r} cannot be stored", remedy="use a time from 1970 to 2249")
    return micros


Id = Annotated[str, PlainValidator(_check_id)]
ThreadId = Annotated[str, PlainValidator(_check_thread)]  # of the thread before
Micros = Annotated[int, PlainValidator(_micros)]  # from a time in ISO 8601
Listed = Annotated[list[T], Field(strict=False)]  # or a tuple
