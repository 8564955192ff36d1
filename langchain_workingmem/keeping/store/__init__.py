"""Values in Redis: read, commit, forget, hide, copy; the scripts are in keeping/lua."""

from langchain_workingmem.keeping.store.commits import (
    VALUES,
    Digests,
    Kept,
    Made,
    change_kept,
    change_row,
    digest_of,
    keys_of,
    mark_command,
    read_kept,
)

__all__ = [
    "VALUES",
    "Digests",
    "Kept",
    "Made",
    "change_kept",
    "change_row",
    "digest_of",
    "keys_of",
    "mark_command",
    "read_kept",
]
