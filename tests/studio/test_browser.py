"""The studio in a real browser: Debian's chromium, driven by playwright. Where there is none, these tests are skipped."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import LocalEmbeddings, Memory, ObservationOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import ended, started
from tests.helpers.observers import Echo
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
        ids: Any = {"thread_id": "trip", "resource_id": "maya"}
        for number in range(12):
            memory.save_turn(
                [
                    HumanMessage(f"Is hut {number} booked? {EVIL}"),
                    AIMessage(" ".join(f"yes{number}-{at}" for at in range(50))),
                ],
                **ids,
            )
        memory.threads.update("trip", title=f"Trip {EVIL}", metadata={"topic": EVIL})
        memory.working_memory.update(f"# About\n- {'long' * 60}\n- {EVIL}", resource_id="maya")
        for text in (EVIL, f"{EVIL}\n{'long' * 60}"):
            memory.files.write("/evil.md", text, resource_id="maya")
        observed = ObservationOptions(model=Echo(), message_tokens=10_000, keep_tokens=1, background=False)
        with Memory(server.url, key_prefix=prefix, observations=observed) as observing:
            observing.observations.observe("trip")
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


NARROW, WIDE = ({"viewport": {"width": width, "height": 800}} for width in (360, 1200))
# texts with a contrast of less than 4.5 to their ground
PALE = """() => {
    const light = (part) => part.map((n) => n / 255).map((n) => n <= 0.03928 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4)
        .reduce((sum, n, at) => sum + n * [0.2126, 0.7152, 0.0722][at], 0);
    const color = (text) => text.match(/[0-9.]+/g).map(Number);
    const isClear = (one) => { const [, , , alpha = 1] = color(getComputedStyle(one).backgroundColor); return alpha === 0; };
    const found = [];
    for (const one of document.querySelectorAll("body *")) {
        const isText = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!isText || !one.checkVisibility({ visibilityProperty: true }) || one.matches("option, script, .skip")) continue;
        let ground = one, opacity = 1;
        for (let at = one; at; at = at.parentElement) opacity *= getComputedStyle(at).opacity;
        while (ground.parentElement && isClear(ground)) ground = ground.parentElement;
        const back = color(getComputedStyle(ground).backgroundColor);
        const front = color(getComputedStyle(one).color).slice(0, 3).map((n, at) => n * opacity + back[at] * (1 - opacity));
        const [a, b] = [light(front), light(back.slice(0, 3))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found.push(`${one.localName}.${one.className} ${ratio.toFixed(2)} ${one.textContent.slice(0, 30)}`);
    }
    return found;
}"""


MORE = {  # further states of pages, and what only such a state shows
    "/?q=nothing": "p:text('No thread is here')",
    "/find?user=maya&thread=trip&q=hut&every=1": "ol.hits mark",
    "/compare?user=maya&thread=trip": "li.was-gone, li.was-new",
    "/context?user=maya&thread=trip&turn=0": "svg.cost",
    "/recall?user=maya&q=hut&of_thread=trip&about=0": "h2:text('that you ask about')",
    "/recall/settings?user=maya&q=hut&b_top_k=1": "li.only",
    "/cost?user=maya": "form input[name=days]",
    "/working-memory?user=maya": "pre.document",
    "/files?user=maya": "ul.list",
    "/deletion?user=jonas": "li .chip.ok",
}


def _opened(screen: Screen, addresses: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Open each page, and all that can be opened on it."""
    for address in addresses:
        page = screen.go(*address.split("?"))
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        yield address, page


@pytest.mark.parametrize(
    "screen",
    [
        {"color_scheme": "light", **NARROW},
        pytest.param({"color_scheme": "dark", **WIDE}, marks=pytest.mark.nightly),
        pytest.param({"color_scheme": "light", **WIDE}, marks=pytest.mark.nightly),
        pytest.param({"color_scheme": "dark", **NARROW}, marks=pytest.mark.nightly),
    ],
    indirect=True,
    ids=["light-narrow", "dark-wide", "light-wide", "dark-narrow"],
)
def test_every_page_fits_its_screen_and_its_text_contrasts_with_the_ground(screen: Screen) -> None:
    for path, page in _opened(screen, [*PAGES, "/thread/nothing"]):
        assert page.evaluate(PALE) == [], path
        width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert width[0] <= width[1], path


@pytest.mark.nightly
@pytest.mark.parametrize(
    "screen",
    [{"color_scheme": theme, "bypass_csp": True, **width} for theme in ("light", "dark") for width in (NARROW, WIDE)],
    indirect=True,
)
def test_axe_finds_nothing(screen: Screen) -> None:
    package = pytest.importorskip("axe_playwright_python", reason="no axe: pip install --group test")
    axe = Path(package.__file__).with_name("axe.min.js").read_text()
    _delete(screen.go("/data", "user=jonas"), "jonas")
    for path, page in _opened(screen, [*PAGES, "/thread/nothing", *MORE]):
        assert page.locator(MORE.get(path, "h1")).count(), path
        page.evaluate(axe)
        found = page.evaluate("axe.run(document)")
        assert found["passes"], path
        seen = [(one["id"], [node["target"] for node in one["nodes"]]) for one in found["violations"]]
        assert seen == [], path


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


def test_a_long_conversation_is_searched_and_its_head_stays_in_reach(screen: Screen, talked: Memory) -> None:
    ids: Any = {"thread_id": "trip", "resource_id": "maya"}
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    picture = {"type": "image", "base64": png, "mime_type": "image/png"}
    talked.save_turn([HumanMessage([{"type": "text", "text": "# A marmot\n| a |\n|--:|\n| b |"}, picture])], **ids)
    for number in range(40):
        talked.save_turn([HumanMessage(f"**Lake** {number}", id=f"lake-{number}"), AIMessage("Yes. " * 30)], **ids)
    page = screen.go("/thread")
    in_reach = "(() => { const at = document.querySelector('.top').getBoundingClientRect(); return at.top >= 0 && at.bottom <= innerHeight; })()"
    assert page.evaluate("scrollY") > 1000  # the newest message is shown first
    assert page.evaluate(in_reach)
    page.get_by_label("Words to find in the conversation").fill("marmot")
    page.get_by_role("button", name="Find").click()
    page.get_by_text("in the conversation", exact=False).last.click()
    target = page.locator(".talk li:target", has_text="A marmot")
    target.wait_for()
    below = (
        "(one) => one.getBoundingClientRect().top >= document.querySelector('.top').getBoundingClientRect().bottom - 1"
    )
    assert target.evaluate(below)
    target.locator("img").evaluate("(one) => one.decode()")  # fails if the browser does not show it
    assert target.locator("td").count() == 1
    page.get_by_label("Position or id of a message").fill("lake-3")
    page.get_by_role("button", name="Go").click()
    page.locator(".talk li:target strong", has_text="Lake").wait_for()
    page.get_by_role("link", name="First").click()
    page.get_by_text("Is hut 0 booked?").wait_for()
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
    page.get_by_text("Export all data of the user").click()
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


def test_a_question_stands_before_clear_and_before_the_deletion_of_a_line(screen: Screen, talked: Memory) -> None:
    page = screen.go("/working-memory", "user=maya")
    clear = page.get_by_role("button", name="Clear working memory")
    assert not clear.is_visible()
    page.get_by_text("Clear", exact=True).click()
    page.get_by_text("Do you want to empty working memory?").wait_for()
    clear.click()
    page.get_by_text("Cleared.").wait_for()
    page.wait_for_function("!location.search.includes('done')")
    assert talked.working_memory.get(resource_id="maya").is_empty
    page = screen.go("/observations", "user=maya")
    page.locator("li[data-item] a").first.click()
    page.locator(".log a.facts").first.click()
    number = page.locator(".log li[data-item]").count()
    delete = page.get_by_role("button", name="Delete it")
    assert not delete.is_visible()
    page.get_by_text("Delete the line").click()
    delete.click()
    page.get_by_text("Deleted.").wait_for()
    assert page.locator(".log li[data-item]").count() == number - 1
    assert screen.problems == []


def _delete(page: Any, user: str) -> None:
    page.get_by_text("Delete all data of the user").click()
    page.locator("input[name=confirm]").fill(user)
    page.get_by_role("button", name="Delete everything").click()
    page.get_by_text("No key of Redis names the user any more.").wait_for()


def test_a_deletion_is_followed_to_its_outcome(screen: Screen, talked: Memory) -> None:
    page = screen.go("/users", "")
    page.get_by_role("link", name="data").click()
    _delete(page, "maya")
    assert talked.threads.list(resource_id="maya").total == 0
    assert screen.problems == []


def test_files_are_found_edited_restored_and_deleted(screen: Screen, talked: Memory) -> None:
    ids: Any = {"resource_id": "maya"}
    talked.files.write("/notes/hut 1.md", "one\ntwo\nthree\n", **ids)
    page = screen.go("/files", "user=maya")
    page.locator("input[name=q]").fill("hut*")
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name="/notes/hut 1.md").click()
    page.get_by_text("Edit", exact=True).click()
    page.locator("textarea").fill("one\nTWO\nthree\n")
    talked.files.write("/notes/hut 1.md", "one\ntwo\nthree\nfour\n", **ids)  # it is merged with what was typed
    page.get_by_role("button", name="Store", exact=True).click()
    page.get_by_text("Stored.").wait_for()
    assert talked.files.read("/notes/hut 1.md", **ids).text == "one\nTWO\nthree\nfour\n"
    page.get_by_text("Edit", exact=True).click()
    page.locator("textarea").fill("mine")
    talked.files.write("/notes/hut 1.md", "theirs", **ids)
    page.get_by_role("button", name="Store", exact=True).click()
    page.get_by_text("Somebody has changed the same lines").wait_for()
    assert page.locator("textarea").input_value() == "mine"
    page.get_by_role("button", name="Store", exact=True).click()
    page.locator("pre.document", has_text="mine").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_text() == "mine"
    assert download.value.suggested_filename == "hut 1.md"
    page.get_by_role("button", name="Restore").first.click()
    page.locator("pre.document", has_text="theirs").wait_for()
    page.get_by_text("Delete this file").click()
    page.get_by_role("button", name="Delete it; its revisions stay").click()
    page.get_by_text("There is no file here now").wait_for()
    page.get_by_role("button", name="Restore").first.click()
    page.locator("pre.document", has_text="theirs").wait_for()
    page.get_by_text("Delete this file").click()
    page.locator("input[name=confirm]").fill("/notes/hut 1.md")
    page.get_by_role("button", name="Delete it permanently").click()
    page.get_by_text("Deleted permanently.").wait_for()  # in the nearest directory that has files
    talked.files.write("/notes/b.md", "b", **ids)
    page = screen.go("/files", "user=maya&path=/notes")
    page.get_by_text("Delete this directory").click()
    page.locator("input[name=confirm]").fill("/notes")
    page.get_by_role("button", name="Delete all files in it").click()
    page.get_by_text("Deleted.").wait_for()
    assert [one.path for one in talked.files.list("/", **ids)] == ["/evil.md"]
    assert [one for one in screen.problems if "409" not in one and "404" not in one] == []  # of a look at what is gone
