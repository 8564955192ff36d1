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

playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install --group test")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH: apt install chromium")

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
PAGES = [
    "/",
    "/thread",
    "/context",
    "/recall",
    "/working-memory",
    "/observations",
    "/files",
    "/store",
    "/data",
    "/doctor",
]


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
        ids: Any = {"thread_id": "trip", "resource_id": "maya"}
        for number in range(12):
            memory.save_turn(
                [HumanMessage(f"Is hut {number} booked? {EVIL}"), AIMessage("Yes. " + "word " * 60)], **ids
            )
        memory.threads.update("trip", title=f"Trip {EVIL}", metadata={"topic": EVIL})
        memory.working_memory.update(f"# About\n- {'long' * 60}\n- {EVIL}", resource_id="maya")
        for text in (EVIL, f"{EVIL}\n{'long' * 60}"):
            memory.files.write("/evil.md", text, resource_id="maya")
        yield memory


class Screen:
    """A page of the browser, and what went wrong on it."""

    def __init__(self, page: Any, root: str) -> None:
        self.page, self.root = page, root
        self.problems: list[str] = []
        page.on("console", lambda one: self.problems.append(one.text) if one.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda one: self.problems.append(one.url) if not one.url.startswith(root) else None)

    def go(self, path: str, query: str = "user=maya&thread=trip&q=hut&path=/evil.md") -> Any:
        self.page.goto(f"{self.root}{path}?{query}")
        return self.page


@pytest.fixture
def screen(chromium: Any, talked: Memory, server: EmbeddedRedis, prefix: str, request: Any) -> Iterator[Screen]:
    """A studio that runs as a process, and a browser that has opened the printed address."""
    options = getattr(request, "param", {})
    program = started("studio", "--write", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdout
    address = program.stdout.readline().strip()
    context = chromium.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
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


@pytest.mark.parametrize("screen", [{"viewport": {"width": 360, "height": 640}}], indirect=True)
def test_every_page_fits_a_screen_of_360_pixels(screen: Screen) -> None:
    for path in PAGES:
        page = screen.go(path)
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1], path


@pytest.mark.parametrize(
    "screen", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True, ids=["light", "dark"]
)
def test_text_contrasts_with_its_ground(screen: Screen, request: Any) -> None:
    page = screen.go("/thread")
    ratio = """(one) => {
        const style = getComputedStyle(one);
        let ground = one;
        while (ground && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
        const light = (text) => {
            const part = text.match(/[0-9.]+/g).slice(0, 3).map((n) => n / 255)
                .map((n) => n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
            return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
        };
        const [a, b] = [light(style.color), light(getComputedStyle(ground || document.body).backgroundColor)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    }"""
    for name in ("body", ".text", ".head", ".quiet", "nav a", ".button", ".mode", "footer"):
        assert page.locator(name).first.evaluate(ratio) >= 4.5, name


def test_a_conversation_in_progress_updates_itself(screen: Screen, talked: Memory) -> None:
    page = screen.go("/thread")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    talked.save_turn([("user", "And the boat?"), ("assistant", "It sails.")], thread_id="trip", resource_id="maya")
    page.locator("li.new", has_text="It sails.").wait_for()
    assert page.evaluate("innerHeight + scrollY >= document.documentElement.scrollHeight - 100")
    talked.history.clear("trip")
    page.get_by_text("No message is here.").wait_for()
    page.goto(f"{screen.root}/working-memory?user=maya")
    talked.working_memory.update("# About\n- boat: Kestrel", resource_id="maya")
    page.locator("pre.document", has_text="Kestrel").wait_for()
    assert screen.problems == []


def test_keys_move_search_and_open(screen: Screen) -> None:
    page = screen.go("/", "user=maya")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("hut")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=hut**")
    page.goto(f"{screen.root}/?user=maya")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/thread?**")
    first = page.locator("[data-item]").first.get_attribute("id")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == first
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.id") == first
    page.goto(f"{screen.root}/?user=maya")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"


def test_forms_of_the_browser_edit_restore_and_delete(screen: Screen, talked: Memory) -> None:
    page = screen.go("/working-memory", "user=maya")
    page.get_by_text("Edit", exact=True).click()
    page.locator("textarea").fill("# About\n- dog: Nougat")
    page.get_by_role("button", name="Store").click()
    page.locator("pre.document", has_text="Nougat").wait_for()
    assert talked.working_memory.get(resource_id="maya").text == "# About\n- dog: Nougat"
    page.get_by_role("button", name="Restore").click()
    page.locator("pre.document", has_text="long").wait_for()
    page.goto(f"{screen.root}/thread?user=maya&thread=trip")
    page.get_by_text("Delete this thread").click()
    page.locator("input[name=confirm]").fill("trip")
    page.get_by_role("button", name="Delete the thread").click()
    page.get_by_text("No thread is here").wait_for()
    assert talked.threads.get("trip") is None
    assert screen.problems == []


def test_an_export_is_saved_as_a_file(screen: Screen, talked: Memory) -> None:
    page = screen.go("/data", "user=maya")
    page.get_by_text("Export all data of the resource").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save the file").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == len(list(talked.export_resource("maya")))


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


def test_a_studio_that_has_ended_is_noticed(chromium: Any, talked: Memory, server: EmbeddedRedis, prefix: str) -> None:
    program = started("studio", "--key-prefix", prefix, REDIS_URL=server.url)
    assert program.stdout
    page = chromium.new_page()
    page.goto(program.stdout.readline().strip())
    program.terminate()
    assert ended(program) == 0
    page.locator("[data-live].away").wait_for()
    page.close()
