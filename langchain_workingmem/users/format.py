"""The format of an export: its name, its version and its first record."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
FORMAT, VERSION = "langchain-workingmem", 1
# The errors that reading a record of any shape may raise.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def header(resource_id: str | None = None) -> Record:
    """Return the first record; without a resource, the caller of the import names it."""
    return {"kind": "header", "format": FORMAT, "version": VERSION, "resource_id": resource_id}
