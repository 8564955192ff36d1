"""Whose memory it is: no request, header, id or argument reaches that of another user."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.messages import HumanMessage

from langchain_workingmem import IdError, Memory, OptionError, RecallOptions, WorkingMemoryOptions
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.mcp import application
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import sample
from tests.helpers.odd_ids import NAMES, secret, secrets_in, tell
from tests.helpers.types import Make
from tests.mcp.conftest import TOKENS, Client, inside, over_http, running

MAYA, JONAS = TOKENS
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list_threads", "arguments": {}}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture
def shared(make_memory: Make) -> Memory:
    """A memory of all names, each with the secret and the thread that has the name of the next one."""
    memory = make_memory(
        embeddings=WordEmbeddings(), recall=RecallOptions(threshold=0), working_memory=WorkingMemoryOptions(template="")
    )
    for user, name in NEXT.items():
        tell(memory, name, user=user)
        memory.working_memory.update(f"knows {secret(name)}", user_id=user)
    return memory


NEXT = dict(zip(NAMES[::3], [*NAMES[3::3], NAMES[0]], strict=True))


async def test_a_client_sees_what_is_its_own_and_nothing_else(shared: Memory) -> None:
    for user, name in sample(NEXT.items(), 10):
        async with inside(shared, user) as client:
            shown: list[Any] = [await client.data("list_threads", limit=100), await client.text("get_working_memory")]
            question = "the pin of mine"
            shown += [await ask("search_memory", query=question) for ask in (client.data, client.text)]
            assert secrets_in(*shown) == {name}


async def test_a_foreign_thread_is_like_a_missing_one_everywhere(make_memory: Make) -> None:
    options: Any = {"scope": "thread"}
    memory = make_memory(
        embeddings=WordEmbeddings(), recall=RecallOptions(**options), working_memory=WorkingMemoryOptions(**options)
    )
    memory.history.append([HumanMessage("a secret")], thread_id="theirs", user_id="jonas")
    memory.working_memory.update("# a secret", thread_id="theirs", user_id="jonas")

    async def told(client: Client, thread: str) -> list[str]:
        calls: list[tuple[str, dict[str, Any]]] = [
            ("search_memory", {"query": "secret"}),
            ("get_working_memory", {}),
            ("update_working_memory", {"memory": "mine"}),
            ("update_working_memory", {"edits": [{"find": "secret", "replace": ""}], "revision": 1}),
            ("clear_working_memory", {}),
        ]
        return [(await client.refusal(name, thread_id=thread, **more)).replace(thread, "ID") for name, more in calls]

    async with inside(memory, "maya") as client:
        foreign = await told(client, "theirs")
        assert foreign == await told(client, "nothere")
        assert {*foreign} == {'There is no thread "ID". list_threads lists the threads, and save_messages begins one.'}
        saved = [{"role": "user", "content": "mine"}]
        refusal = await client.refusal("save_messages", messages=saved, thread_id="theirs")
        assert 'thread "theirs" cannot be written to' in refusal
        assert "jonas" not in refusal
        assert (await client.data("list_threads"))["total"] == 0
    assert memory.working_memory.get(thread_id="theirs").text == "# a secret"
    assert [message.text for message in memory.history.messages("theirs")] == ["a secret"]
    assert memory.threads.get("nothere") is None


async def test_a_token_says_whose_memory_it_is(server: EmbeddedRedis, prefix: str, token_file: Path) -> None:
    words = ("--embeddings", "none", "--url", server.url, "--key-prefix", prefix, "--tokens", str(token_file))
    with running("--http", *words) as url:
        async with over_http(url, MAYA) as maya, over_http(url, JONAS) as jonas:
            await maya.save("the pin is secretmaya", thread_id="t|{maya}")
            await maya.text("update_working_memory", memory="- secretmaya")
            await jonas.save("the pin is secretjonas", thread_id="t|{jonas}")
            assert "secretmaya" not in str(await jonas.data("list_threads"))
            assert "empty" in await jonas.text("get_working_memory")
            assert [one["thread_id"] for one in (await maya.data("list_threads"))["threads"]] == ["t|{maya}"]
        async with httpx.AsyncClient(headers=ACCEPT) as client:

            async def post(method: str = "POST", **headers: str) -> httpx.Response:
                return await client.request(method, url, json=CALL, headers=headers)

            # there are no sessions: an id of one changes nothing, and the answer is for the token
            answer = await post(**{"Authorization": f"bearer {JONAS}", "Mcp-Session-Id": "1"})
            assert "mcp-session-id" not in answer.headers
            assert "t|{jonas}" in answer.text
            assert "t|{maya}" not in answer.text
            for name in ("X-User-Id", "Mcp-User", "langchain_workingmem.user"):
                assert (await post(**{"Authorization": f"Bearer {JONAS}", name: "maya"})).json() == answer.json()
            for sent in ("", "Bearer", "Bearer no-such-token-0123", f"Basic {MAYA}", f"Bearer {MAYA}x", MAYA):
                refused = await post(Authorization=sent)
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
            twice = [("Authorization", f"Bearer {MAYA}"), ("Authorization", f"Bearer {JONAS}")]
            assert (await client.post(url, json=CALL, headers=twice)).status_code == 401
            assert (await post()).status_code == 401
            for method in ("GET", "DELETE", "PUT"):
                known = await post(method, Authorization=f"Bearer {MAYA}")
                assert (known.status_code, known.headers["allow"]) == (405, "POST")
            for header, value in (("Host", "evil.example"), ("Origin", "https://evil.example"), ("Origin", "null")):
                assert (await post(**{"Authorization": f"Bearer {MAYA}", header: value})).status_code == 403


async def test_an_application_serves_under_a_path_of_a_program(make_memory: Make) -> None:
    """Without a lifespan of its own, in a program that has other pages."""
    from fastapi import FastAPI

    memory = make_memory()
    app = FastAPI()
    app.mount("/memory", application(memory, tokens=TOKENS))
    memory.history.append([HumanMessage("x")], thread_id="mine", user_id="maya")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here", headers=ACCEPT) as client:
        for token, threads in ((MAYA, ["mine"]), (JONAS, [])):
            answer = await client.post("/memory/", json=CALL, headers={"Authorization": f"Bearer {token}"})
            shown = json.loads(answer.text)["result"]["structuredContent"]["threads"]
            assert [one["thread_id"] for one in shown] == threads


NESTED = "[" * 10_000 + "]" * 10_000
HEAD = '{"jsonrpc": "2.0", "id": 7, "method": '


BODIES: list[tuple[str | bytes, int, int | None]] = [
    ("{", 400, -32700),
    (NESTED, 400, -32700),
    (f'{HEAD}"tools/call", "params": {{"name": ["hush"], "arguments": "hush"}}}}', 400, -32602),
    (f'{HEAD}"hush/hush"}}', 200, -32601),
    ('{"jsonrpc": "2.0", "method": "notifications/hush", "params": {"hush": 1}}', 202, None),
    ('{"jsonrpc": "2.0", "id": "hush", "result": {"hush": 1}}', 202, None),
    (b" " * (2**20 + 1), 413, None),
]


async def test_a_body_that_is_no_message_is_refused_without_a_word_in_the_log(
    plain: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    app = httpx.ASGITransport(application(plain, user_id="maya"))
    headers = {**ACCEPT, "Content-Type": "application/json"}
    with caplog.at_level(logging.INFO):
        async with httpx.AsyncClient(transport=app, base_url="http://here", headers=headers) as client:
            for body, status, code in BODIES:
                answer = await client.post("/", content=body)
                assert answer.status_code == status, body[:99]
                assert code is None or answer.json()["error"]["code"] == code
            assert (await client.post("/", json=CALL)).json()["result"]["isError"] is False
    assert not [one for one in caplog.records if "hush" in one.getMessage() or one.levelno > logging.INFO]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, OptionError),
        ({"user_id": "maya", "tokens": TOKENS}, OptionError),
        ({"tokens": {}}, OptionError),
        ({"tokens": {"short": "maya"}}, OptionError),
        ({"tokens": {"0123456789abcdef": ""}}, IdError),
        ({"user_id": ""}, IdError),
    ],
)
def test_an_application_without_one_owner_is_refused(plain: Memory, options: Any, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        application(plain, **options)
