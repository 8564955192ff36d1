"""Who may enter the studio: the token, the host, the origin, and what a read-only studio refuses."""

from __future__ import annotations

from langchain_workingmem import Memory
from langchain_workingmem.studio.app import HEADERS
from tests.studio.conftest import ROOT, TOKEN, Open

PATHS = ["/", "/thread", "/data?user=maya", "/static/studio.css", "/nothing"]
FORMS = ["/thread/delete", "/working-memory", "/log", "/data"]


def test_nobody_enters_without_the_token(lived: Memory, open_studio: Open) -> None:
    client = open_studio(lived, token=None).client
    for path in PATHS:
        for given in ({}, {"token": "x"}, {"token": ""}, {"token": TOKEN[:-1]}, {"token": "é😀"}):
            answer = client.get(path, params={**given})
            assert answer.status_code == 401
            assert "workingmem studio" in answer.text
            assert "set-cookie" not in answer.headers
        for cookie in ("x", TOKEN.upper(), f"{TOKEN} "):
            assert client.get(path, headers={"cookie": f"workingmem=x; token={cookie}"}).status_code == 401


def test_the_token_leaves_the_address_and_becomes_a_cookie_that_scripts_cannot_read(
    lived: Memory, open_studio: Open
) -> None:
    visitor = open_studio(lived, token=None)
    entered = visitor.client.get(f"/thread?user=maya&thread=trip&token={TOKEN}", follow_redirects=False)
    assert entered.status_code == 303
    assert entered.headers["location"] == "/thread?user=maya&thread=trip"
    assert {"httponly", "samesite=strict"} <= {*entered.headers["set-cookie"].lower().split("; ")}
    assert "A trip" in visitor.page("/thread", user="maya", thread="trip")


def test_an_entrance_never_leads_to_another_site(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, token=None)
    for path in ("//evil.example/", "/\\evil.example", "///evil.example"):
        for query in (f"token={TOKEN}", "of=user%3Dmaya", "of="):
            answer = visitor.client.get(f"{ROOT}{path}?{query}", follow_redirects=False)
            assert answer.status_code == 303
            assert not answer.headers["location"].startswith(("//", "/\\", "http"))


def test_other_hosts_and_origins_are_refused(lived: Memory, open_studio: Open) -> None:
    client = open_studio(lived, write=True).client
    hosts = ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "127.0.0.1@evil.example"]
    hosts += ["localhost/evil", "", "127.0.0.1:x"]
    origins = [
        "http://evil.example",
        "null",
        "https://127.0.0.1:8000",
        "http://127.0.0.1:9999",
        "http://localhost:8000",
    ]
    for headers in [{"host": host} for host in hosts] + [{"origin": origin} for origin in origins]:
        assert client.get("/", headers=headers).status_code == 403, headers
        form = client.post("/data?user=maya", data={"confirm": "maya"}, headers=headers)
        assert form.status_code == 403, headers
    assert lived.threads.get("trip") is not None


def test_every_name_of_this_machine_is_accepted(lived: Memory, open_studio: Open) -> None:
    client = open_studio(lived).client
    cookie = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST:1"):
        assert client.get("/static/studio.css", headers={"host": host, "cookie": cookie}).status_code == 200, host


def test_every_answer_keeps_other_pages_out(lived: Memory, open_studio: Open) -> None:
    for visitor in (open_studio(lived), open_studio(lived, token=None)):
        for path in ("/", "/static/studio.css", "/nothing"):
            answer = visitor.client.get(path)
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            policy = answer.headers["content-security-policy"]
            assert "unsafe" not in policy
            assert "default-src 'none'" in policy


def test_a_studio_that_only_reads_refuses_every_form(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived)
    for path in FORMS:
        answer = visitor.send(path, {"confirm": "maya", "action": "clear"}, user="maya", thread="trip")
        assert answer.status_code == 403
        assert "--write" in answer.text
    for path, of in {"/thread": {"thread": "trip"}, "/working-memory": {}, "/data": {}}.items():
        assert 'method="post"' not in visitor.page(path, user="maya", **of)


def test_a_form_without_an_origin_is_refused(lived: Memory, open_studio: Open) -> None:
    visitor = open_studio(lived, write=True)
    for path in FORMS:
        form = {"confirm": "maya", "action": "clear"}
        assert visitor.send(path, form, origin=None, user="maya", thread="trip").status_code == 403
    assert lived.threads.get("trip") is not None
    assert not lived.working_memory.get(user_id="maya").is_empty
