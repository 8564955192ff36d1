"""Run the notebooks offline and store their outputs.

python notebooks/refresh.py             write changed outputs; a changed time is not a change
python notebooks/refresh.py --check     write nothing, and fail if a notebook shows another output than the stored one
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat as untyped
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

nbformat: Any = untyped
HERE = Path(__file__).parent
AT_ONCE = 2  # kernels
COLOURS = re.compile(r"\x1b\[[\d;]*m")  # of a traceback
TIMES = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d")
DIGITS = re.compile(r"\b0\.\d\d\b|\d+%")  # similarities, which another processor may round differently


def environment(folder: str) -> dict[str, str]:
    """Return the environment of a kernel: without a key, without a Redis URL, without the user's Jupyter settings."""
    kept = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "REDIS_URL")}
    return kept | {"IPYTHONDIR": folder, "JUPYTER_RUNTIME_DIR": folder, "PYTHONWARNINGS": "default"}


async def run(path: Path, cwd: Path, turn: asyncio.Semaphore) -> Any:
    """Run a notebook in a separate kernel, and return it with its outputs."""
    notebook: Any = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    async with turn:
        with tempfile.TemporaryDirectory() as folder:
            sockets = {"transport": "ipc", "ip": f"{folder}/kernel"}  # no ports, because other users could reach them
            client = NotebookClient(
                notebook,
                timeout=60,
                kernel_name="python3",
                coalesce_streams=True,
                record_timing=False,
                config=Config({"KernelManager": sockets}),
                resources={"metadata": {"path": str(cwd)}},
            )
            await client.async_execute(env=environment(folder))
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for output in outputs(notebook):
        data = output.get("data", {})
        if "text/html" in data:
            data.pop("text/plain", None)  # it contains every field of a record
    return notebook


def outputs(notebook: Any) -> list[Any]:
    """Return the outputs of all cells."""
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def warned(notebook: Any) -> str:
    """Return the standard error output of a notebook: warnings and log lines."""
    return "".join(output.text for output in outputs(notebook) if output.get("name") == "stderr")


def lines(notebook: Any) -> list[str]:
    """Return a notebook as lines, without values that differ from run to run."""
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    return DIGITS.sub("0.##", TIMES.sub("(time)", text)).splitlines()


async def refresh(paths: list[Path], *, write: bool) -> list[str]:
    """Run notebooks in parallel, and return their problems; `write` stores changed outputs."""
    turn = asyncio.Semaphore(AT_ONCE)
    # Jupyter runs in the folder of a notebook, or in the folder where it was started
    folders = [(HERE, HERE.parent)[number % 2] for number in range(len(paths))]
    running = (run(path, cwd, turn) for path, cwd in zip(paths, folders, strict=True))
    wrong = []
    for path, done in zip(paths, await asyncio.gather(*running, return_exceptions=True), strict=True):
        if isinstance(done, CellExecutionError):
            wrong.append(f"{path.name}: {COLOURS.sub('', str(done))}")
            continue
        if isinstance(done, BaseException):
            raise done
        if said := warned(done):
            wrong.append(f"{path.name} warns:\n{said}")
        old = lines(nbformat.read(path, as_version=4))
        changes = list(difflib.unified_diff(old, lines(done), "stored", "shown now", lineterm="", n=1))
        if changes and write:
            nbformat.write(done, path)
        elif changes:
            wrong.append("\n".join([f"{path.name} shows another output than the stored one: make notebooks", *changes]))
    return wrong


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, fail if an output differs")
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(HERE.glob("*.ipynb")))
    chosen = parser.parse_args()
    sys.exit("\n".join(asyncio.run(refresh(chosen.notebooks, write=not chosen.check))) or None)


if __name__ == "__main__":
    main()
