"""Adds the notebooks to the site, a page each, with the outputs that they keep. A hook of mkdocs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page(path)))
    return files


def page(path: Path) -> str:
    """Return a notebook as Markdown."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in written(cell)]
    return "\n\n".join(parts).replace("](../docs/", "](../").replace(".ipynb)", ".md)") + "\n"


def written(cell: dict[str, Any]) -> list[str]:
    """Return the source and the outputs of a cell."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"````python\n{source}\n````", *map(shown, cell["outputs"])]


def shown(output: dict[str, Any]) -> str:
    """Return an output: the picture of a record, or text."""
    data = output.get("data", {})
    if "text/html" in data:
        return f'<div class="output">{"".join(data["text/html"])}</div>'
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return f"````text\n{text}\n````"
