"""Puts the documentation into the wheel, as the folder `docs` of the package. An editable install has it in the checkout."""

from __future__ import annotations

import runpy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Documentation(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the pages into a temporary folder, from which the wheel takes them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the pages to the builder."""
        self.folder = TemporaryDirectory()
        if version == "editable":
            return
        root = Path(self.root)
        pages = runpy.run_path(str(root / "docs/extensions/pages.py"))
        for name in pages["names"](root):
            path = Path(self.folder.name, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(pages["content"](root, name), encoding="utf-8", newline="\n")
        build_data["force_include"][self.folder.name] = "langchain_workingmem/docs"

    def finalize(self, *_: Any) -> None:
        """Remove the temporary folder."""
        self.folder.cleanup()
