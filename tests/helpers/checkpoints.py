"""Checkpoints as graphs leave them, without running a graph."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

BEGAN = datetime(2025, 3, 1, 9, tzinfo=UTC)


def put_states(
    saver: BaseCheckpointSaver[Any],
    thread_id: str,
    states: Sequence[Any],
    *,
    began: datetime = BEGAN,
    after: Any = None,
    namespace: str = "",
    **metadata: Any,
) -> list[Any]:
    """Put a checkpoint for each state, an hour apart, and return their configs; the first one follows `after`."""
    config: Any = after or {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
    made = []
    for at, state in enumerate(states):
        checkpoint: Any = empty_checkpoint()
        version = checkpoint["id"]
        checkpoint |= {
            "ts": (began + at * timedelta(hours=1)).isoformat(),
            "channel_values": {"messages": state},
            "channel_versions": {"messages": version},
        }
        told: Any = {"source": "loop", "step": at, **metadata}
        config = saver.put(config, checkpoint, told, {"messages": version})
        made.append(config)
    return made
