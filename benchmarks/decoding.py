"""What it costs to make a message of what is stored, beside the ways that LangChain and pydantic offer."""

from __future__ import annotations

import argparse
import json
import platform
import timeit
from functools import partial
from typing import TYPE_CHECKING

import langchain_core
import pydantic
from common import row
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage, messages_from_dict

from langchain_workingmem._documents.messages import encode_body, read_message

if TYPE_CHECKING:
    from collections.abc import Callable

CALL = {"name": "weather", "args": {"city": "Oslo"}, "id": "1"}
USAGE = {"input_tokens": 10, "output_tokens": 90, "total_tokens": 100}
MESSAGES = {
    "a question": HumanMessage("What is my dog called?", id="q"),
    "an answer": AIMessage("It is called Nougat. " * 20, id="a", usage_metadata=USAGE),
    "a tool call": AIMessage("", id="c", tool_calls=[CALL]),
    "its result": ToolMessage("sunny " * 50, id="r", tool_call_id="1"),
}


def ways(message: BaseMessage) -> list[Callable[[], BaseMessage]]:
    """Give ours, then pydantic's, which calls LangChain's constructor, then LangChain's."""
    record = json.loads(b"{" + encode_body(message)[0])
    data = json.dumps(record["data"]).encode()

    def from_dict() -> BaseMessage:
        return messages_from_dict([{"type": message.type, "data": json.loads(data)}])[0]

    kind = type(message)
    found: list[Callable[[], BaseMessage]] = [
        partial(read_message, message.type, data),
        partial(kind.model_validate_json, data),
        from_dict,
    ]
    assert all(way() == message for way in found)
    return found


def microseconds(way: Callable[[], object], calls: int) -> float:
    """Return the least time of a call, of several runs."""
    return min(timeit.repeat(way, number=calls, repeat=7)) / calls * 1e6


def main() -> None:
    """Print a row per kind of message."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000, help="in each of seven runs, of which the least counts")
    calls = parser.parse_args().calls
    versions = f"langchain-core {langchain_core.__version__}, pydantic {pydantic.VERSION}"
    print(f"Python {platform.python_version()}, {versions}; microseconds")
    print(row("message", "ours", "`model_validate_json`", "`messages_from_dict`"))
    print(row("---", "--:", "--:", "--:"))
    for name, message in MESSAGES.items():
        print(row(name, *(f"{microseconds(way, calls):.1f}" for way in ways(message))))


if __name__ == "__main__":
    main()
