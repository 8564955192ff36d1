"""Puts the documentation into the wheel, as the folder `docs` of the package. An editable install has it in the checkout.

The README becomes the description that a package index shows.
"""

from __future__ import annotations

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class Documentation(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the pages into a temporary folder, from which the wheel takes them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the pages to the builder."""
        self.folder = TemporaryDirectory()
        if version == "editable":
            return
        root = Path(self.root)
        pages = _pages(root)
        for name in pages["names"](root):
            path = Path(self.folder.name, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages["content"](root, name), encoding="utf-8", newline="\n")
        build_data["force_include"][self.folder.name] = "langchain_workingmem/docs"

    def finalize(self, *_: Any) -> None:
        """Remove the temporary folder."""
        self.folder.cleanup()


class Description(MetadataHookInterface):
    """Makes the description of the README."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the description to the metadata."""
        root = Path(self.root)
        metadata["readme"] = {"content-type": "text/markdown", "text": _pages(root)["description"](root)}


def _pages(root: Path) -> dict[str, Any]:
    return runpy.run_path(str(root / "docs/extensions/pages.py"))
