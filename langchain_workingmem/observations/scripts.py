"""The parts of scripts over observations, and what the larger variants of core scripts have besides."""

from __future__ import annotations

from langchain_workingmem._redis.scripts import COMMON, TELLING
from langchain_workingmem.recall import WINDOWS
from langchain_workingmem.turn import TURN

_READS = ("observations/ranges", "observations/reading")
_COVERAGE = (*_READS, "observations/view", "observations/log", "observations/coverage")

READS_LOG = ("header", *_READS)
COVERAGE = (*COMMON, *_COVERAGE)
TELLING[:] = (*_COVERAGE, "observations/hooks")
OBSERVED_TURN = TURN.with_parts(*_READS, "observations/view", "observations/turn", after="header")
OBSERVED_WINDOWS = WINDOWS.with_parts("observations/windows", after="header")
