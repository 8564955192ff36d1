"""The studio in a real browser: Debian's chromium, driven by playwright. Where there is none, these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import LocalEmbeddings, Memory, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import ended, started
from tests.studio.conftest import PAGES

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install --group test")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt install chromium")

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # without a sandbox, because root and containers have none; the pages come from this test
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def talked(server: EmbeddedRedis, prefix: str) -> Iterator[Memory]:
    options = WorkingMemoryOptions()
    with Memory(server.url, key_prefix=prefix, embeddings=LocalEmbeddings(), working_memory=options) as memory:
        ids: Any = {"thread_id": "trip", "user_id": "maya"}
        for number in range(12):
            memory.save_turn(
                [
                    HumanMessage(f"Is hut {number} booked? {EVIL}"),
                    AIMessage(" ".join(f"yes{number}-{at}" for at in range(50))),
                ],
                **ids,
            )
        memory.threads.update("trip", title=f"Trip {EVIL}", metadata={"topic": EVIL})
        memory.working_memory.update(f"# About\n- {'long' * 60}\n- {EVIL}", user_id="maya")
        yield memory


class Screen:
    """A page of the browser, and what went wrong on it."""

    def __init__(self, page: Any, root: str) -> None:
        self.page, self.root = page, root
        self.problems: list[str] = []
        page.on("console", lambda one: self.problems.append(one.text) if one.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda one: self.problems.append(one.url) if not one.url.startswith(root) else None)

    def go(self, path: str, query: str = "user=maya&thread=trip&q=hut") -> Any:
        self.page.goto(f"{self.root}{path}?{query}")
        return self.page


@pytest.fixture
def screen(chromium: Any, talked: Memory, server: EmbeddedRedis, prefix: str) -> Iterator[Screen]:
    """A studio that runs as a process, and a browser that has opened the printed address."""
    program = started("studio", "--write", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdout
    address = program.stdout.readline().strip()
    context = chromium.new_context(viewport={"width": 1200, "height": 800})
    found = Screen(context.new_page(), address.partition("/?")[0])
    found.page.goto(address)
    yield found
    context.close()
    program.terminate()
    assert ended(program) == 0


def test_every_page_is_quiet_and_runs_nothing_that_was_stored(screen: Screen) -> None:
    for path in PAGES:
        assert screen.go(path).title() != "owned"
        assert screen.page.locator("img[src='x']").count() == 0
    assert screen.problems == []


def test_forms_of_the_browser_edit_restore_and_delete(screen: Screen, talked: Memory) -> None:
    page = screen.go("/working-memory", "user=maya")
    page.get_by_text("Edit", exact=True).click()
    page.locator("textarea").fill("# About\n- dog: Nougat")
    page.get_by_role("button", name="Store").click()
    page.locator(".card", has_text="Nougat").wait_for()
    assert talked.working_memory.get(user_id="maya").text == "# About\n- dog: Nougat"
    page.get_by_role("button", name="Restore").click()
    page.locator(".card", has_text="long").wait_for()
    page.goto(f"{screen.root}/thread?user=maya&thread=trip")
    page.get_by_text("Delete this thread").click()
    page.locator("input[name=confirm]").fill("trip")
    page.get_by_role("button", name="Delete the thread").click()
    page.get_by_text("No thread is here").wait_for()
    assert talked.threads.get("trip") is None
    assert screen.problems == []


def test_a_page_of_another_site_can_neither_read_nor_write(screen: Screen, talked: Memory) -> None:
    page, root = screen.page, screen.root
    page.route("http://evil.example/**", lambda route: route.fulfill(body="<form></form>", content_type="text/html"))
    page.goto("http://evil.example/")
    read = f"fetch('{root}/thread?user=maya&thread=trip', {{credentials: 'include'}}).then((r) => r.text(), () => 'refused')"
    assert page.evaluate(read) == "refused"
    page.evaluate(
        f"""() => {{ const form = document.querySelector('form'); form.method = 'post';
        form.action = '{root}/thread/delete?user=maya&thread=trip';
        form.innerHTML = '<input name="confirm" value="trip">'; form.submit(); }}"""
    )
    page.wait_for_url(f"{root}/**")
    assert "Refused" in page.content()
    assert talked.threads.get("trip") is not None


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(screen: Screen, chromium: Any, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: pip install --group test")
    # axe is a script, which the policy of the pages forbids
    context = chromium.new_context(viewport={"width": 390, "height": 844}, color_scheme=theme, bypass_csp=True)
    context.add_cookies(screen.page.context.cookies())
    page = context.new_page()
    for path in [*PAGES, "/nothing"]:
        page.goto(f"{screen.root}{path}?user=maya&thread=trip&q=hut")
        for one in page.locator("details").all():
            one.evaluate("(details) => { details.open = true }")
        found = axe.Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], path
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
    context.close()
