"""The format of an export: its name, version and first record."""

from __future__ import annotations

from typing import Any

Record = dict[str, Any]
FORMAT, VERSION = "langchain-workingmem", 1


def header(resource_id: str | None = None) -> Record:
    """Make the first record; without a resource, who imports names it."""
    return {"kind": "header", "format": FORMAT, "version": VERSION, "resource_id": resource_id}


# What reading a record of any shape may raise.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
