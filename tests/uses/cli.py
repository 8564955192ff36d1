"""The extra `cli`: python cli.py URL PREFIX."""

from __future__ import annotations

import sys

from langchain_workingmem import Memory
from langchain_workingmem.cli import app

URL, PREFIX = sys.argv[1:]

with Memory(URL, key_prefix=PREFIX):
    assert app(["doctor", "--url", URL, "--key-prefix", PREFIX], standalone_mode=False) == 0
