"""The extra `otel`: python -P otel.py URL PREFIX."""

from __future__ import annotations

import sys

from langchain_workingmem import Memory
from langchain_workingmem.telemetry import instrument, uninstrument

URL, PREFIX = sys.argv[1:]

instrument()
with Memory(URL, key_prefix=PREFIX) as memory:
    memory.save_turn([("user", "Hello.")], thread_id="t", user_id="maya")
    assert memory.threads.list(user_id="maya").total == 1
uninstrument()
