"""Observations: a long conversation as a short, dated log with its sources."""

from langchain_workingmem.observations.api import Observations
from langchain_workingmem.observations.archive import (
    NO_COPY,
    Copy,
    Part,
    as_copy,
    copy_command,
    is_still,
    read_resource,
    renamed,
    restore_log,
    restore_resource_log,
)
from langchain_workingmem.observations.documents import (
    ids_command,
    known_log_of,
    list_documents,
    reindex_documents,
    with_ids,
)
from langchain_workingmem.observations.log import KnownLog, observation_count, read_observation
from langchain_workingmem.observations.observing import observe_later, observe_now, pending_tokens, waiting_commands
from langchain_workingmem.observations.outbox import forgetting, publish
from langchain_workingmem.observations.prompts import log_block
from langchain_workingmem.observations.view import (
    NO_LOG,
    View,
    covered_of,
    has_new_coverage,
    known_for,
    note_coverage,
    read_view,
    removed_positions,
    view_arguments,
    view_commands,
)

__all__ = [
    "NO_COPY",
    "NO_LOG",
    "Copy",
    "KnownLog",
    "Observations",
    "Part",
    "View",
    "as_copy",
    "copy_command",
    "covered_of",
    "forgetting",
    "has_new_coverage",
    "ids_command",
    "is_still",
    "known_for",
    "known_log_of",
    "list_documents",
    "log_block",
    "note_coverage",
    "observation_count",
    "observe_later",
    "observe_now",
    "pending_tokens",
    "publish",
    "read_observation",
    "read_resource",
    "read_view",
    "reindex_documents",
    "removed_positions",
    "renamed",
    "restore_log",
    "restore_resource_log",
    "view_arguments",
    "view_commands",
    "waiting_commands",
    "with_ids",
]
