"""What changed between two texts, line by line."""

from __future__ import annotations

import json
from typing import Any

from langchain_workingmem._documents.lines import unified
from langchain_workingmem._documents.merging import parse_json
from langchain_workingmem._text.unicode import to_utf8


def pretty(text: str) -> str:
    """Write a JSON object or array over several lines; any other text stays as it is."""
    found = _json(text)
    return text if found is None else to_utf8(json.dumps(found, ensure_ascii=False, indent=2))


def changes(before: str, after: str) -> list[str]:
    """Return the lines of a unified diff, without its header; a newline at the end of a text does not count."""
    return list(unified(_lines(before), _lines(after)))


def _lines(text: str) -> list[str]:
    found = _json(text)
    if found is not None:
        # no commas and sorted keys: an added or moved field leaves the lines of the others unchanged
        text = to_utf8(json.dumps(found, ensure_ascii=False, indent=2, separators=("", ": "), sort_keys=True))
    return text.removesuffix("\n").split("\n") if text else []


def _json(text: str) -> Any:
    return parse_json(text) if text.lstrip().startswith(("{", "[")) else None
