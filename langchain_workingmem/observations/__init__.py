"""Observations: a long conversation as a short, dated log with its sources."""

from langchain_workingmem.observations.api import Observations
from langchain_workingmem.observations.observing import observe_later, waiting_commands
from langchain_workingmem.observations.outbox import forgetting, publish
from langchain_workingmem.observations.prompts import log_block
from langchain_workingmem.observations.view import (
    NO_LOG,
    View,
    covered_of,
    read_view,
    view_arguments,
    view_commands,
)

__all__ = [
    "NO_LOG",
    "Observations",
    "View",
    "covered_of",
    "forgetting",
    "log_block",
    "observe_later",
    "publish",
    "read_view",
    "view_arguments",
    "view_commands",
    "waiting_commands",
]
