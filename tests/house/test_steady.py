"""Many turns of one process: its memory, descriptors, threads and connections stay as they are.

WORKINGMEM_TURNS sets how many turns; `make nightly` takes 50,000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from tests.house.steady import Figures

pytestmark = [pytest.mark.in_turn("face"), pytest.mark.programs, pytest.mark.nightly]

TURNS = int(os.environ.get("WORKINGMEM_TURNS", "200"))
GROWTH = 24 * 2**20  # bytes: pages of an allocator, caches that fill; a leak of 1 kB a turn is 50 MB in the nightly run


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_many_turns_leave_a_process_as_it_was(face: str) -> None:
    with EmbeddedRedis() as server:  # whose connections are all of that process
        command = [sys.executable, "-m", "tests.house.steady", server.url, face, str(TURNS)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seen = [Figures(*json.loads(line)) for line in run.stdout.splitlines()]
    first, *rest = seen[1:]
    assert seen[-1].turns == TURNS
    assert {one[2:] for one in rest} == {first[2:]}
    assert seen[-1].memory - first.memory < GROWTH
