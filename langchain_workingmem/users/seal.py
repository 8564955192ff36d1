"""What the last record of an archive says of those before it, so that an archive that is cut, or has lost lines, is recognised.

Records that somebody has changed, to redact them or for other ids, are imported, with a warning in the log.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any

from langchain_workingmem._engine.effects import Emit, with_each
from langchain_workingmem.users.sections import END

if TYPE_CHECKING:
    from collections.abc import Mapping

    from langchain_workingmem._engine.effects import Effect, Plan

_log = logging.getLogger("langchain_workingmem")


class Seal:
    """Counts records by kind, and makes a digest of their contents; the header and the order of keys do not count."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._digest = hashlib.sha256()

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the next record."""
        kind = str(record.get("kind"))
        self.counts[kind] += 1
        text = json.dumps(dict(record), sort_keys=True)
        if "NaN" in text or "Infinity" in text:  # JSON has none, so a file has null
            text = json.dumps(json.loads(text, parse_constant=lambda _: None), sort_keys=True)
        self._digest.update(text.encode())

    def record(self) -> dict[str, Any]:
        """Return the last record."""
        return {"kind": END, "records": {**self.counts}, "digest": self._digest.hexdigest()}

    def lacks(self, end: Any) -> str | None:
        """Say what the records added lack by the last record, if there is one; None: nothing."""
        told = end.get("records") if isinstance(end, dict) else None
        if not isinstance(told, dict):
            return f"the end of the archive, which stops behind {_counted(self.counts)}"
        if end == self.record():
            return None
        less = Counter({str(kind): number for kind, number in told.items() if isinstance(number, int)}) - self.counts
        if less:
            return f"{_counted(less)} of the archive"
        _log.warning("some records are not as they were exported; they are imported as they are")
        return None


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} of kind {kind!r}" for kind, number in counts.items()) or "no record"


def sealed(plan: Plan[None]) -> Plan[None]:
    """Run a plan that emits a header and then records, and emit the last record behind them."""
    seal, begins = Seal(), 1  # behind the header

    def added(effect: Effect[Any]) -> Plan[Any]:
        nonlocal begins
        if isinstance(effect, Emit):
            for record in effect.items[begins:]:
                seal.add(record)
            begins = 0
        return (yield effect)

    yield from with_each(plan, added)
    yield Emit([seal.record()])
