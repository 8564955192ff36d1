"""The files that most tests here work on."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory
from langchain_workingmem.files import Files


@pytest.fixture
def files(plain: Memory) -> Files:
    return plain.files
