"""Who may enter the studio: the token, the host, the origin, and what a read-only studio refuses."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory
from langchain_workingmem.studio.app import HEADERS
from tests.studio.conftest import ROOT, TOKEN, Open

PATHS = ["/", "/thread", "/data?user=maya", "/static/studio.css", "/nothing"]
FORMS = ["/thread/delete", "/working-memory", "/log", "/data"]


@pytest.mark.parametrize("path", PATHS)
def test_nobody_enters_without_the_token(lived: Memory, open_studio: Open, path: str) -> None:
    visitor = open_studio(lived, token=None)
    for given in ({}, {"token": "x"}, {"token": ""}, {"token": TOKEN[:-1]}, {"token": "é😀"}):
        answer = visitor.client.get(path, params={**given})
        assert answer.status_code == 401
        assert "workingmem studio" in answer.text
        assert "set-cookie" not in answer.headers
    for cookie in ("x", TOKEN.upper(), f"{TOKEN} "):
        assert visitor.client.get(path, headers={"cookie": f"workingmem=x; token={cookie}"}).status_code == 401


def test_the_token_leaves_the_address_and_becomes_a_cookie_that_scripts_cannot_read(
    lived: Memory, open_studio: Open
) -> None:
    visitor = open_studio(lived, token=None)
    entered = visitor.client.get(f"/thread?user=maya&thread=trip&token={TOKEN}", follow_redirects=False)
    assert entered.status_code == 303
    assert entered.headers["location"] == "/thread?user=maya&thread=trip"
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "A trip" in visitor.page("/thread", user="maya", thread="trip")


def test_an_entrance_never_leads_to_another_site(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, token=None)
    for path in ("//evil.example/", "/\\evil.example", "///evil.example"):
        for query in (f"token={TOKEN}", "of=user%3Dmaya", "of="):
            answer = visitor.client.get(f"{ROOT}{path}?{query}", follow_redirects=False)
            assert answer.status_code == 303
            assert not answer.headers["location"].startswith(("//", "/\\", "http"))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "evil.example:8000"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "127.0.0.1@evil.example"},
        {"host": "localhost/evil"},
        {"host": ""},
        {"host": "127.0.0.1:x"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "https://127.0.0.1:8000"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8000"},
    ],
)
def test_other_hosts_and_origins_are_refused(lived: Memory, open_studio: Open, headers: dict[str, str]) -> None:
    visitor = open_studio(lived, write=True)
    assert visitor.client.get("/", headers=headers).status_code == 403
    assert visitor.client.post("/data?user=maya", data={"confirm": "maya"}, headers=headers).status_code == 403
    assert lived.threads.get("trip") is not None


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST:1"])
def test_every_name_of_this_machine_is_accepted(lived: Memory, open_studio: Open, host: str) -> None:
    answer = open_studio(lived).client.get(
        "/static/studio.css", headers={"host": host, "cookie": _cookie(lived, open_studio)}
    )
    assert answer.status_code == 200


def _cookie(memory: Memory, open_studio: Open) -> str:
    client = open_studio(memory).client
    return "; ".join(f"{name}={value}" for name, value in client.cookies.items())


@pytest.mark.parametrize("path", ["/", "/static/studio.css", "/nothing"])
def test_every_answer_keeps_other_pages_out(lived: Memory, open_studio: Open, path: str) -> None:
    for visitor in (open_studio(lived), open_studio(lived, token=None)):
        answer = visitor.client.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy


@pytest.mark.parametrize("path", FORMS)
def test_a_studio_that_only_reads_refuses_every_form(lived: Memory, open_studio: Open, path: str) -> None:
    answer = open_studio(lived).send(path, {"confirm": "maya", "action": "clear"}, user="maya", thread="trip")
    assert answer.status_code == 403
    assert "--write" in answer.text


@pytest.mark.parametrize("path", FORMS)
def test_a_form_without_an_origin_is_refused(lived: Memory, open_studio: Open, path: str) -> None:
    visitor = open_studio(lived, write=True)
    answer = visitor.send(path, {"confirm": "maya", "action": "clear"}, origin=None, user="maya", thread="trip")
    assert answer.status_code == 403
    assert visitor.client.get(f"{path}?user=maya&thread=trip").status_code in {200, 405, 404}
    assert lived.threads.get("trip") is not None
    assert not lived.working_memory.get(user_id="maya").is_empty


def test_a_studio_that_only_reads_has_no_forms_that_write(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    for path in ("/thread", "/working-memory", "/data"):
        assert 'method="post"' not in visitor.page(
            path, user="maya", **({"thread": "trip"} if path == "/thread" else {})
        )
