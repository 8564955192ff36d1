"""A studio of one user shows nothing of another one, whatever a request names."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.examples import sample
from tests.helpers.odd_ids import NAMES
from tests.helpers.types import Make
from tests.studio.conftest import PAGES, Open, Visitor

SECRET = "Kestrel"
POSTS = ["/thread/delete", "/working-memory", "/log", "/data"]


@pytest.fixture
def visitor(lived: Memory, open_studio: Open) -> Visitor:
    """A visitor of Maya's studio; Jonas has a thread and working memory."""
    lived.working_memory.update(f"# About\n- boat: {SECRET}\n", user_id="jonas")
    return open_studio(lived, user_id="maya", write=True)


def attempts(path: str) -> list[str]:
    """Write addresses that name Jonas in every way that a page knows."""
    rest = [
        "user=jonas",
        "user=maya&user=jonas",
        "user=jonas&user=maya",
        "of=user%3Djonas",
        "of=%3Fuser%3Djonas%26thread%3Dboat",
        "thread=boat",
        "user=jonas&thread=boat",
        "of=thread%3Dboat",
        "user_id=jonas&user=jonas&owner=jonas",
    ]
    return [f"{path}?{one}&q={SECRET}+boat&key=boat&top_k=50&at=1" for one in rest]


@pytest.mark.parametrize("path", PAGES)
def test_no_address_shows_somebody_else(visitor: Visitor, path: str) -> None:
    for address in attempts(path):
        answer = visitor.client.get(address)
        own_words = answer.text.replace(f"{SECRET} boat", "").replace(
            f"{SECRET}+boat", ""
        )  # the question, which the page repeats
        assert SECRET not in own_words, address
        if (
            "user=jonas" in address
            or "thread=boat" in address.replace("%3D", "=")
            or "jonas" in answer.url.query.decode()
        ):
            assert "A fine name" not in answer.text, address


@pytest.mark.parametrize(
    "name", ["x-user", "x-user-id", "authorization", "x-forwarded-user", "x-original-url", "x-http-method-override"]
)
def test_no_header_shows_somebody_else(visitor: Visitor, name: str) -> None:
    values = ("jonas", "/thread?user=jonas&thread=boat", "DELETE")
    for at, path in enumerate(PAGES):
        for value in sample(values, 1, offset=at):
            answer = visitor.client.get(f"{path}?q=boat", headers={name: value})
            assert SECRET not in answer.text
            assert "jonas" not in answer.text


@pytest.mark.parametrize("path", POSTS)
def test_no_form_reaches_somebody_else(visitor: Visitor, lived: Memory, path: str) -> None:
    before = (lived.threads.get("boat"), lived.working_memory.get(user_id="jonas"))
    for address in attempts(path):
        for confirm in ("boat", "jonas"):
            for action in ("edit", "clear", "revert", "delete"):
                data = {
                    "confirm": confirm,
                    "action": action,
                    "text": "x",
                    "revision": "1",
                    "user": "jonas",
                    "key": "boat",
                }
                visitor.client.post(address, data=data, headers={"origin": "http://127.0.0.1:8000"})
    assert (lived.threads.get("boat"), lived.working_memory.get(user_id="jonas")) == before
    assert "Kestrel" in str(list(lived.users.export("jonas")))


@pytest.mark.parametrize("path", ["/thread", "/context", "/working-memory", "/recall", "/find", "/log"])
def test_a_foreign_thread_answers_like_a_missing_one(visitor: Visitor, path: str) -> None:
    foreign, missing = (visitor.get(path, thread=name, q="boat") for name in ("boat", "none"))
    assert (foreign.status_code, foreign.text) == (missing.status_code, missing.text)
    assert foreign.status_code == 404


def test_the_front_page_lists_only_the_own_threads(visitor: Visitor) -> None:
    for path in ("/", "/threads"):
        page = visitor.page(path)
        assert "A trip" in page
        assert "boat" not in page
        assert "jonas" not in page
        assert "users</dt>" not in page


@pytest.mark.parametrize("name", sample(NAMES[::5], 8))
def test_ids_that_look_alike_are_apart(make_memory: Make, open_studio: Open, name: str) -> None:
    memory = make_memory(working_memory=WorkingMemoryOptions())
    others = {"a", "b", "ab", "a b", *(one for one in NAMES[::9] if len(one.encode()) < 500)}
    for other in others - {name}:
        memory.save_turn([("user", SECRET)], thread_id=f"t{other}", user_id=other)
        memory.working_memory.update(f"# About\n- {SECRET}", user_id=other)
    memory.save_turn([("user", "my own")], thread_id="mine", user_id=name)
    visitor = open_studio(memory, user_id=name)
    assert visitor.page("/threads").count('href="/thread?') == 1
    for path in ("/", "/threads", "/find", "/thread", "/working-memory", "/log", "/data"):
        assert SECRET not in visitor.get(path, thread="mine").text
        assert SECRET not in visitor.get(path).text
