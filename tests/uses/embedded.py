"""The extra `embedded`: python embedded.py."""

from __future__ import annotations

from langchain_workingmem import Memory

with Memory.embedded() as memory:
    assert memory.threads.list().total == 0
