"""The whole server of docs/how-to/server.md over HTTP: users, streams, foreign threads, a restart, deletion."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from langchain.agents import factory

from tests.applications.conftest import run_page
from tests.helpers.models import ModelDownError, Scripted, calling

PAGE = Path(__file__).parents[2] / "docs/how-to/server.md"
MAYA = {"Authorization": "Bearer a-long-token-of-maya"}
OMAR = {"Authorization": "Bearer a-long-token-of-omar"}


@pytest.fixture(scope="module")
def program() -> dict[str, Any]:
    return run_page(PAGE)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scripted:
    """The model of the server, whose data lie in the folder of the test."""
    model = Scripted.says()
    monkeypatch.setenv("DATA", str(tmp_path))
    monkeypatch.setattr(factory, "init_chat_model", lambda *_, **__: model)
    return model


@pytest.fixture
def client(program: dict[str, Any], model: Scripted) -> Iterator[TestClient]:
    with TestClient(program["app"]) as client:
        yield client


def say(client: TestClient, thread: str, text: str, user: dict[str, str] = MAYA) -> list[str]:
    """Return the events of an answer: words of the model, and the kind of the last event."""
    found = client.post(f"/threads/{thread}/messages", json={"text": text}, headers=user)
    assert found.status_code == 200
    words = [json.loads(line.removeprefix("data: ")) for line in found.text.splitlines() if line.startswith("data: ")]
    return [*words, found.text.strip().splitlines()[-2].removeprefix("event: ")]


def listed(client: TestClient, user: dict[str, str] = MAYA) -> list[str]:
    return sorted(one["id"] for one in client.get("/threads", headers=user).json()["threads"])


def status(client: TestClient, method: str, path: str, user: dict[str, str] | None = MAYA) -> int:
    body: Any = {"json": {"text": "let me in"}} if method == "POST" else {}
    return int(client.request(method, path, headers=user or {}, **body).status_code)


def test_an_answer_is_streamed_and_another_thread_knows_it(client: TestClient, model: Scripted) -> None:
    model.script += ["A lovely name!", lambda sent: "Nougat." if "is Nougat" in str(sent) else "?"]
    assert say(client, "mon", "My dog is Nougat.") == ["A ", "lovely ", "name! ", "done"]
    assert say(client, "fri", "Who is my dog?") == ["Nougat. ", "done"]
    found = client.get("/threads/mon/messages", headers=MAYA).json()["messages"]
    assert [one["who"] + one["text"].strip() for one in found] == ["humanMy dog is Nougat.", "aiA lovely name!"]
    assert listed(client) == ["fri", "mon"]


def test_tools_of_memory_are_used_and_not_streamed(client: TestClient, model: Scripted) -> None:
    model.script += [calling(("update_working_memory", {"memory": "Maya bakes."}), id="a"), "Noted.", "Bread."]
    assert say(client, "mon", "I bake.") == ["Noted. ", "done"]
    assert [one["who"] for one in client.get("/threads/mon/messages", headers=MAYA).json()["messages"]] == [
        "human",
        "ai",
    ]
    say(client, "fri", "What do I make?")
    assert "Maya bakes." in str(model.seen[-1])


def test_nobody_reaches_the_thread_of_another_user(client: TestClient, model: Scripted) -> None:
    model.script += ["Hello."]
    say(client, "mon", "Good morning.")
    for call in ("GET mon/messages", "DELETE mon", "POST mon/messages", "GET none/messages"):
        method, path = call.split()
        assert status(client, method, f"/threads/{path}", OMAR) == 404
        assert status(client, method, f"/threads/{path}", None) == 401
    assert (listed(client), listed(client, OMAR)) == (["mon"], [])
    assert len(model.seen) == 1


def test_a_restart_forgets_nothing(program: dict[str, Any], model: Scripted) -> None:
    model.script += ["Noted.", "You do."]
    with TestClient(program["app"]) as client:
        say(client, "mon", "I like tea.")
    with TestClient(program["app"]) as client:
        say(client, "mon", "What do I like?")
        assert len(client.get("/threads/mon/messages", headers=MAYA).json()["messages"]) == 4
    assert "I like tea." in str(model.seen[-1])


def test_a_failure_of_the_model_is_an_event(
    client: TestClient, model: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    model.script += [ModelDownError("no reply"), "Back again."]
    assert say(client, "mon", "Hello?") == ["failed"]
    assert "no reply" in caplog.text
    assert say(client, "mon", "Hello!") == ["Back ", "again. ", "done"]


def test_what_is_deleted_is_in_no_database(client: TestClient, model: Scripted, tmp_path: Path) -> None:
    model.script += ["Noted.", "Noted.", "Noted."]
    for thread, user in (("mon", MAYA), ("tue", MAYA), ("wed", OMAR)):
        say(client, thread, "My pin is 4711.", user)
    assert status(client, "DELETE", "/threads/mon") == 204
    assert (listed(client), checkpoints(tmp_path)) == (["tue"], {"tue", "wed"})
    records = [json.loads(line) for line in client.get("/me/export", headers=MAYA).text.splitlines()]
    assert [one["id"] for one in records if one["kind"] == "thread"] == ["tue"]
    assert client.delete("/me", headers=MAYA).json() == {"deleted": True, "checkpoints": "deleted"}
    assert (listed(client), listed(client, OMAR), checkpoints(tmp_path)) == ([], ["wed"], {"wed"})
    assert status(client, "GET", "/threads/tue/messages") == 404


def checkpoints(folder: Path) -> set[str]:
    """Return the threads of which the checkpointer holds anything."""
    with sqlite3.connect(folder / "checkpoints.db") as database:
        rows = database.execute("SELECT thread_id FROM checkpoints UNION SELECT thread_id FROM writes").fetchall()
    database.close()
    return {thread for (thread,) in rows}
