"""The extra `server`: python -P server.py URL PREFIX."""

from __future__ import annotations

import sys
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from openai import OpenAI
from starlette.testclient import TestClient

from langchain_workingmem import Memory
from langchain_workingmem.middleware import MemoryMiddleware
from langchain_workingmem.openai_server import application

URL, PREFIX = sys.argv[1:]

with Memory(URL, key_prefix=PREFIX) as memory:
    agent: Any = create_agent(FakeListChatModel(responses=["Hello!"]), middleware=[MemoryMiddleware(memory)])
    app = application(agent, memory, users={"a-key-of-maya-0123": "maya"})
    client = OpenAI(base_url="http://testserver/v1", api_key="a-key-of-maya-0123", http_client=TestClient(app))
    headers = {"x-conversation-id": "t"}
    hi: Any = [{"role": "user", "content": "Hi."}]
    chunks = client.chat.completions.create(model="agent", messages=hi, extra_headers=headers, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello!"
    assert [message.text for message in memory.history.messages("t", resource_id="maya")] == ["Hi.", "Hello!"]
