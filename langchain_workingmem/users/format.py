"""The format of an export: its name, its version and its first record; the namespaces of items that belong to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_workingmem.checks import as_tuple
from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Record = dict[str, Any]
Namespace: TypeAlias = "tuple[str, ...]"
PLACEHOLDERS = ("{resource_id}", "{user_id}")  # labels that stand for the resource; langmem's templates have the latter
FORMAT, VERSION = "langchain-workingmem", 2  # 1 has no `title_from`
KINDS = ("thread", "message", "working_memory", "observations", "item")  # of the records after the header
# The errors that reading a record of any shape may raise.
UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def header(resource_id: str | None = None) -> Record:
    """Return the first record; without a resource, the caller of the import names it."""
    return {"kind": "header", "format": FORMAT, "version": VERSION, "resource_id": resource_id}


def paths_of(namespaces: Iterable[Sequence[str]], resource_id: str) -> list[Namespace]:
    """Put the resource into templates of namespaces; `OptionError` for a template without it."""
    found = []
    for template in as_tuple(namespaces, "namespaces", "namespaces"):
        path = as_tuple(template, "namespaces", "labels")
        if not any(label in PLACEHOLDERS for label in path):
            raise OptionError(
                f"namespaces holds {path}, which does not name the resource",
                remedy="use a placeholder, as in ('memories', '{user_id}')",
            )
        found.append(tuple(resource_id if label in PLACEHOLDERS else label for label in path))
    return found
