"""Working memory: a small document of facts that the agent keeps; `memory.working_memory`."""

from langchain_workingmem.working_memory.answers import describe_change, describe_no_change, parse_document
from langchain_workingmem.working_memory.api import WorkingMemory
from langchain_workingmem.working_memory.operations import (
    NOTHING,
    ScopeKey,
    change_at_scope_key,
    change_working_memory,
    check_document,
    check_writable,
    find_scope_key,
    pause_after,
    read_commands,
    read_state,
    read_working_memory,
    reader_of,
    run_memory,
    verified,
    write_revision_into,
)
from langchain_workingmem.working_memory.prompt import update_rules, working_memory_block

__all__ = [
    "NOTHING",
    "ScopeKey",
    "WorkingMemory",
    "change_at_scope_key",
    "change_working_memory",
    "check_document",
    "check_writable",
    "describe_change",
    "describe_no_change",
    "find_scope_key",
    "parse_document",
    "pause_after",
    "read_commands",
    "read_state",
    "read_working_memory",
    "reader_of",
    "run_memory",
    "update_rules",
    "verified",
    "working_memory_block",
    "write_revision_into",
]
