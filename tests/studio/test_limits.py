"""Large texts, large forms and long conversations: they hold neither a page nor the event loop."""

from __future__ import annotations

import time
from urllib.parse import urlencode

import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage

from langchain_workingmem import Memory, WorkingMemoryOptions
from langchain_workingmem.studio import Studio, application
from langchain_workingmem.studio.app import MOST_BYTES
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.types import Make
from tests.studio.conftest import ROOT, TOKEN
from tests.users.test_event_loop import HELD, longest_hold

FORM = {"content-type": "application/x-www-form-urlencoded", "origin": ROOT}


@pytest.fixture
def large(make_memory: Make) -> Memory:
    """Bombs of Markdown, texts of a megabyte, and a thread of many messages."""
    memory = make_memory(embeddings=WordEmbeddings(), working_memory=WorkingMemoryOptions())
    memory.history.append([AIMessage("*a*" * 6_666) for _ in range(30)], thread_id="bombs", user_id="maya")
    memory.history.append([AIMessage("*a* " * 1_990) for _ in range(30)], thread_id="small bombs", user_id="maya")
    memory.history.append([HumanMessage("word <&> " * 110_000)] * 8, thread_id="long", user_id="maya")
    memory.history.append([HumanMessage("\u200b\x01" * 500_000)], thread_id="hidden", user_id="maya")
    memory.history.append([HumanMessage(f"message {at}") for at in range(3_000)], thread_id="many", user_id="maya")
    memory.working_memory.update("- **a** *b* `c`\n" * 4_000, user_id="maya")
    return memory


PAGES: list[tuple[str, dict[str, str]]] = [
    ("/", {}),
    *[(path, {}) for path in ("/threads", "/data")],
    *[("/thread", {"thread": thread}) for thread in ("bombs", "small bombs", "long", "hidden")],
    ("/thread", {"thread": "many", "limit": "500"}),
    ("/find", {"q": "nothing of this"}),
    ("/find", {"thread": "long", "q": "word"}),
    ("/find", {"thread": "many", "q": "1 " * 100}),
    ("/context", {"thread": "long", "q": "word " * 2_000}),
    ("/recall", {"q": "word " * 2_000, "top_k": "50"}),
    ("/working-memory", {"revision": "1"}),
]


@pytest.mark.alone
async def test_no_page_holds_the_event_loop_or_its_reader(large: Memory) -> None:
    studio = Studio(memory=large, token=TOKEN, documents={"user": large}, write=True)
    app = httpx.ASGITransport(application(studio))
    async with httpx.AsyncClient(transport=app, base_url=ROOT, follow_redirects=True, timeout=60) as client:
        await client.get("/", params={"token": TOKEN})
        for path, parameters in PAGES:
            began = time.monotonic()
            address = f"{path}?{urlencode({'user': 'maya', **parameters})}"
            answer, held = await longest_hold(lambda address=address: client.get(address))  # type: ignore[misc]
            assert answer.status_code == 200, (path, parameters, answer.text)
            assert held < HELD, (path, parameters, held)
            assert time.monotonic() - began < 10, (path, parameters)
            assert len(answer.text) < 5_000_000, (path, parameters)
        for body in (b"a=%41&" * 10, b"text=" + b"%41" * 300_000, b"a" * MOST_BYTES, b"&" * MOST_BYTES):
            form = {"content": body, "headers": FORM}
            answer, held = await longest_hold(lambda form=form: client.post("/working-memory?user=maya", **form))  # type: ignore[misc]
            assert answer.status_code in {400, 413}
            assert held < HELD, (body[:20], held)


@pytest.mark.alone
@pytest.mark.parametrize("cookie", ["", "a=b; " * 6_000], ids=["a stranger", "with cookies"])
async def test_no_address_or_header_holds_the_event_loop(lived: Memory, cookie: str) -> None:
    """Those of a stranger, who has no token; the server itself lets headers and address have 32 KiB."""
    app = httpx.ASGITransport(application(Studio(memory=lived, token=TOKEN)))
    queries = ["a=&" * 10_000, "token=" + "%41" * 10_000, "token=a&" * 4_000, "of=a%3D%26" * 3_000, "&" * 32_000]
    async with httpx.AsyncClient(transport=app, base_url=ROOT, headers={"cookie": cookie}) as client:
        for query in queries:
            answer, held = await longest_hold(lambda query=query: client.get(f"/?{query}"))  # type: ignore[misc]
            assert answer.status_code == 401
            assert held < HELD, (query[:9], held)
