"""Fixtures that several files here need."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the page of recipes, and return its names."""
    names: dict[str, Any] = {}
    path = Path(__file__).parents[2] / "docs/how-to/recipes.md"
    blocks = re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile("\n".join(blocks), str(path), "exec", dont_inherit=True), names)
    return names
