"""The first page: its picture is small and names no machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
PAGES = {"README.md": "docs/images/", "docs/index.md": "images/"}
LIMITS = {"studio.webp": 200_000}  # bytes
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
MACHINE = re.compile(rb"/home/|/root/|/tmp/|/work/|/Users/|127\.0\.0\.1|localhost")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_the_picture_with_a_text_in_its_place(page: str) -> None:
    shown = {path: text for text, path in PICTURE.findall((ROOT / page).read_text(encoding="utf-8"))}
    for name in LIMITS:
        assert len(shown[PAGES[page] + name].split()) > 15, name


@pytest.mark.parametrize("name", LIMITS)
def test_a_picture_is_small_and_names_no_machine(name: str) -> None:
    content = (IMAGES / name).read_bytes()
    assert 5_000 < len(content) < LIMITS[name]
    assert not MACHINE.search(content)


def test_the_address_of_the_repository_is_one_placeholder() -> None:
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md")]
    assert {*re.findall(r"https?://[^\s\"`]*langchain-workingmem", "".join(pages))} == {
        "https://repository.invalid/langchain-workingmem"
    }
    assert all("repository.invalid" in page for page in pages)
