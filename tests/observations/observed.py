"""Observations for tests of what is done with their text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Noted:
    """What prompts show of an observation."""

    text: str
    said_at: datetime
    priority: str = "normal"
    id: str = ""
    sources: Sequence[tuple[str, str]] = (("t", "m"),)
