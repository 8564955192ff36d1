"""A server that answers as Anthropic's Messages API does, from a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class FakeClaude:
    """What it is to say, one list of content blocks a call, and what it was sent."""

    url: str
    script: list[list[dict[str, Any]]] = field(default_factory=list)
    seen: list[dict[str, Any]] = field(default_factory=list)
    betas: list[str] = field(default_factory=list)

    def says(self, *script: str | dict[str, Any]) -> None:
        """Take commands of the memory tool, or texts, one a call."""
        for at, line in enumerate(script):
            command = {"type": "tool_use", "id": f"toolu_{at}", "name": "memory", "input": line}
            self.script.append([{"type": "text", "text": line} if isinstance(line, str) else command])

    def results(self, call: int) -> list[str]:
        """Return the results of tools that a call was sent in its last message."""
        blocks = self.seen[call]["messages"][-1]["content"]
        found = [one["content"] for one in blocks if one["type"] == "tool_result"]
        return [one if isinstance(one, str) else one[0]["text"] for one in found]


@contextmanager
def fake_claude() -> Iterator[FakeClaude]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            claude.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            claude.betas.append(self.headers.get("anthropic-beta", ""))
            content = claude.script.pop(0)
            reason = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
            usage = {"input_tokens": 1, "output_tokens": 1}
            head = {"id": "msg", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
            body = json.dumps({**head, "content": content, "stop_reason": reason, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        claude = FakeClaude(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield claude
        server.shutdown()
        thread.join()


def chat_model_of(claude: FakeClaude) -> Any:
    from langchain_anthropic import ChatAnthropic

    made: Any = ChatAnthropic
    return made(model="claude", base_url=claude.url, api_key="none")
