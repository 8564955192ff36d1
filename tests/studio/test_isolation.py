"""A studio of one user shows nothing of another one, whatever a request names."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory, WorkingMemoryOptions
from tests.helpers.examples import sample
from tests.helpers.odd_ids import NAMES
from tests.helpers.types import Make
from tests.studio.conftest import PAGES, ROOT, Open, Visitor

SECRET = "Kestrel"
NAMING_JONAS = [
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
HEADERS = ["x-user", "x-user-id", "authorization", "x-forwarded-user", "x-original-url", "x-http-method-override"]


@pytest.fixture
def visitor(lived: Memory, open_studio: Open) -> Visitor:
    """A visitor of Maya's studio; Jonas has a thread and working memory."""
    lived.working_memory.update(f"# About\n- boat: {SECRET}\n", user_id="jonas")
    return open_studio(lived, user_id="maya", write=True)


@pytest.mark.parametrize("path", PAGES)
def test_no_address_and_no_header_shows_somebody_else(visitor: Visitor, path: str) -> None:
    for query in NAMING_JONAS:
        text = visitor.client.get(f"{path}?{query}&q={SECRET}+boat&key=boat&top_k=50&at=1").text
        own_words = text.replace(f"{SECRET} boat", "").replace(f"{SECRET}+boat", "")  # a page repeats the question
        assert SECRET not in own_words, query
        assert "A fine name" not in text, query
    for name in HEADERS:
        for value in ("jonas", "/thread?user=jonas&thread=boat", "DELETE"):
            text = visitor.client.get(f"{path}?q=boat", headers={name: value}).text
            assert SECRET not in text
            assert "jonas" not in text


@pytest.mark.parametrize("path", ["/thread/delete", "/working-memory", "/log", "/data"])
def test_no_form_reaches_somebody_else(visitor: Visitor, lived: Memory, path: str) -> None:
    before = (lived.threads.get("boat"), lived.working_memory.get(user_id="jonas"))
    for query in NAMING_JONAS:
        for confirm in ("boat", "jonas"):
            for action in ("edit", "clear", "revert", "delete"):
                form = {"confirm": confirm, "action": action, "text": "x", "revision": "1", "user": "jonas"}
                visitor.client.post(f"{path}?{query}", data={**form, "key": "boat"}, headers={"origin": ROOT})
    assert (lived.threads.get("boat"), lived.working_memory.get(user_id="jonas")) == before
    assert SECRET in str(list(lived.users.export("jonas")))


@pytest.mark.parametrize("path", ["/thread", "/context", "/working-memory", "/recall", "/find", "/log"])
def test_a_foreign_thread_answers_like_a_missing_one(visitor: Visitor, path: str) -> None:
    foreign, missing = (visitor.get(path, thread=name, q="boat") for name in ("boat", "none"))
    assert (foreign.status_code, foreign.text) == (missing.status_code, missing.text)
    assert foreign.status_code == 404


def test_lists_hold_only_what_is_the_users_own(visitor: Visitor) -> None:
    for path in ("/", "/threads"):
        page = visitor.page(path)
        assert "A trip" in page
        assert not [one for one in ("boat", "jonas", "users</dt>", "/users", "memory of the server") if one in page]
    assert visitor.get("/users").status_code == 404


@pytest.mark.parametrize("name", sample(NAMES[::5], 5))
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
