"""The picture of the first page, made by running the studio on conversations of `examples/`, with fixed times: `make pictures`."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

from langchain_workingmem import LocalEmbeddings, Memory
from langchain_workingmem.importers import header

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs/images"
WIDTH, HEIGHT = 1040, 832  # of the page, in CSS pixels; the picture has twice as many
QUALITY = 80  # of WebP
USER = "maya"
QUESTION = "Am I allergic to shrimps?"


def records() -> Iterator[dict[str, Any]]:
    """Yield the conversations of a user as an import reads them, a message each minute."""
    users = json.loads((ROOT / "examples/conversations.json").read_text(encoding="utf-8"))["users"]
    yield header()
    for thread in users[USER]:
        began = datetime.fromisoformat(thread["metadata"]["started"]).replace(hour=18, tzinfo=UTC)
        yield {"kind": "thread", "id": thread["thread_id"], "title": thread["title"], "metadata": thread["metadata"]}
        for minute, message in enumerate(thread["messages"]):
            stored_at = (began + timedelta(minutes=minute)).isoformat()
            yield {"kind": "message", "thread_id": thread["thread_id"], "stored_at": stored_at, "message": message}


def show_studio() -> bytes:
    """Return a picture of the studio, as WebP: what recall finds for a question, and why."""
    with TemporaryDirectory() as folder:
        with Memory.embedded(folder, embeddings=LocalEmbeddings()) as memory:
            memory.users.load(records(), resource_id=USER)
        command = [sys.executable, "-P", "-m", "langchain_workingmem.cli", "studio", "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:  # noqa: S603 - ours
            try:
                address = program.stdout.readline().strip() if program.stdout else ""
                return photograph(address)
            finally:
                program.terminate()


def photograph(address: str) -> bytes:
    """Open the page of recall as a reader does, by its links and its form."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))  # or its own
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(address)
        page.get_by_role("link", name=USER).first.click()
        page.get_by_role("link", name="Recall").click()
        page.get_by_label("Question").fill(QUESTION)
        page.get_by_label("Hits").fill("2")
        page.get_by_role("button", name="Search").click()
        page.get_by_text("Just missed").wait_for()
        devtools = page.context.new_cdp_session(page)  # playwright itself writes no WebP
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 2}
        taken = devtools.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY, "clip": clip})
        browser.close()
    return base64.b64decode(taken["data"])


if __name__ == "__main__":
    (IMAGES / "studio.webp").write_bytes(show_studio())
