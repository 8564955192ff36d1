"""Reads the files of models out of packages that are not imported: their code needs more than the files do."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from mmap import mmap

    Tensor: TypeAlias = np.ndarray[Any, np.dtype[np.floating[Any]]]

_TYPES = {"F32": "<f4", "F16": "<f2"}


def folder_of(package: str) -> Path:
    """Return the folder of an installed package; `ImportError` if there is none."""
    found = find_spec(package)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(found.origin).parent


def tensors(content: bytes | mmap) -> dict[str, Tensor]:
    """Read a safetensors file: the size of a header (8 bytes), the header (JSON: types, shapes, offsets), the numbers.

    The arrays share the memory of the content. Those of other types than float32 and float16 are left out.
    """
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    numbers = memoryview(content)[start:]
    return {
        name: np.frombuffer(numbers[begin:end], _TYPES[entry["dtype"]]).reshape(entry["shape"])
        for name, entry in header.items()
        if entry.get("dtype") in _TYPES
        for begin, end in [entry["data_offsets"]]
    }
