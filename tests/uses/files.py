"""The extra `files`: python -P files.py URL PREFIX."""

from __future__ import annotations

import sys

from langchain_workingmem import Memory

URL, PREFIX = sys.argv[1:]

with Memory(URL, key_prefix=PREFIX) as memory:
    memory.files.write("/notes/a.md", "Hello.\n", user_id="maya")
    assert [one.path for one in memory.files.glob("*.md", user_id="maya")] == ["/notes/a.md"]
