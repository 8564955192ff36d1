"""Derived rows: what models have made of messages, with the messages behind it.

`asking` and `worker`, which only wings need, are imported by their names.
"""

from langchain_workingmem.derived.moving import export_rows, restore_rows
from langchain_workingmem.derived.rows import (
    NEWEST,
    ROW_KINDS,
    NewRow,
    Ranges,
    Rows,
    Work,
    commit,
    fail,
    give,
    known_rows,
    learn,
    note_deleted,
    note_given,
    read_rows_of,
    read_threads,
    read_work,
    show_command,
    take,
    thread_commands,
)

__all__ = [
    "NEWEST",
    "ROW_KINDS",
    "NewRow",
    "Ranges",
    "Rows",
    "Work",
    "commit",
    "export_rows",
    "fail",
    "give",
    "known_rows",
    "learn",
    "note_deleted",
    "note_given",
    "read_rows_of",
    "read_threads",
    "read_work",
    "restore_rows",
    "show_command",
    "take",
    "thread_commands",
]
