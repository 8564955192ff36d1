"""What fixtures give to tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_workingmem import Memory

Make = Callable[..., Memory]  # takes the arguments of Memory
Invoke = Callable[..., Any]  # takes what is to be invoked, and the arguments of its invoke
