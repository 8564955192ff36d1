"""What all importers share: the records that they write, and checks of what they are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langchain_core.messages import message_to_dict

from langchain_workingmem.checks import wrong_type

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

Record = dict[str, Any]


def check_list(value: Any, name: str, wanted: str) -> None:
    """Raise `OptionError` for what is no list, or other iterable."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(value, name, f"pass {wanted}")


def moment(seconds: float | None) -> str | None:
    """Return a Unix time as records have it."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def message_record(thread_id: str, message: BaseMessage, stored_at: str | None) -> Record:
    """Return the record of a message; without a time, it gets that of the import."""
    return {"kind": "message", "thread_id": thread_id, "stored_at": stored_at, "message": message_to_dict(message)}
