"""Observations: a long conversation as a short, dated log with its sources."""

from langchain_workingmem.observations.api import Observations
from langchain_workingmem.observations.block import log_block
from langchain_workingmem.observations.observing import observe_later, waiting_commands
from langchain_workingmem.observations.outbox import forgetting, publish
from langchain_workingmem.observations.ranges import contains
from langchain_workingmem.observations.view import (
    NO_LOG,
    View,
    covered_of,
    has_new_coverage,
    note_coverage,
    read_view,
    removed_positions,
    view_arguments,
    view_commands,
)

__all__ = [
    "NO_LOG",
    "Observations",
    "View",
    "contains",
    "covered_of",
    "forgetting",
    "has_new_coverage",
    "log_block",
    "note_coverage",
    "observe_later",
    "publish",
    "read_view",
    "removed_positions",
    "view_arguments",
    "view_commands",
    "waiting_commands",
]
