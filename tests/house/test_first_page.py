"""The first page: its pictures show what the programs do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
PAGES = {"README.md": "docs/images/", "docs/index.md": "images/"}
LIMITS = {"studio.webp": 200_000, "chat.svg": 100_000}  # bytes
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")
MACHINE = re.compile(rb"/home/|/root/|/tmp/|/work/|/Users/|127\.0\.0\.1|localhost")
# ids; times, and similarities, which another processor may round differently
VARYING = re.compile(r"(?<=chat-)[0-9a-f]{8}|\d+")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_both_pictures_with_a_text_in_their_place(page: str) -> None:
    shown = {path: text for text, path in PICTURE.findall((ROOT / page).read_text(encoding="utf-8"))}
    for name in LIMITS:
        assert len(shown[PAGES[page] + name].split()) > 15, name


@pytest.mark.parametrize("name", LIMITS)
def test_a_picture_is_small_and_names_no_machine(name: str) -> None:
    content = (IMAGES / name).read_bytes()
    assert 5_000 < len(content) < LIMITS[name]
    assert not MACHINE.search(content)


def test_the_recording_fetches_nothing_and_stands_still_for_those_who_prefer_that() -> None:
    text = (IMAGES / "chat.svg").read_text(encoding="utf-8")
    assert not re.search(r"url\(|href|@import|<script", text)
    before, _, moving = text.partition("@media (prefers-reduced-motion: no-preference)")
    assert "animation" in moving
    assert "animation" not in before


def test_the_recording_begins_with_something_to_see() -> None:
    text = (IMAGES / "chat.svg").read_text(encoding="utf-8")
    assert (
        len(re.findall(r"@keyframes l\d+\{0%\{opacity:0\}0\.00%,to", text)) > 3
    )  # lines that are there from the beginning


def test_the_address_of_the_repository_is_one_placeholder() -> None:
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md")]
    assert {*re.findall(r"https?://[^\s\"`]*langchain-workingmem", "".join(pages))} == {
        "https://repository.invalid/langchain-workingmem"
    }
    assert all("repository.invalid" in page for page in pages)


@pytest.mark.nightly
@pytest.mark.skipif(not shutil.which("bash"), reason="the session is typed into bash")
def test_the_recording_shows_what_the_program_prints_now() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "docs/extensions/recording.py"]
    recorded = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    now, rest = lines(recorded), iter(lines(recorded))
    for line in lines((IMAGES / "chat.svg").read_text(encoding="utf-8")):
        # the last of the hits depend on the time of day, which an answer quotes and which is embedded with it
        assert line.startswith("· recalled") or line in rest, (
            f"{line!r} is not printed: `make pictures` records it again"
        )
    assert any(line.startswith("· recalled") and "walnuts" in line for line in now)


def lines(picture: str) -> list[str]:
    shown = ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return [VARYING.sub("0", "".join(line.itertext())) for line in shown]
