"""The protocol: what a client asks, and the objects that it gets. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, convert_to_messages

from langchain_workingmem.errors import (
    IdError,
    OptionError,
    RedisConnectionError,
    ResourceDeletedError,
    ThreadOwnershipError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage
    from langchain_core.messages.ai import UsageMetadata

# Between the text with which an agent calls its tools, and what it says later: no eye sees the two signs. A client sends
# the whole text back; what stands after the signs is the answer, as memory has stored it.
BREAK = "\n\n\u2063\u2063"
_SIGNS = BREAK.strip()
TASKS = "-tasks"  # the end of the name of the model that remembers nothing
THREAD_HEADERS = ("x-conversation-id", "x-openwebui-chat-id")
_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")  # no ids and no marks of LangChain
_OWN = {"tools": "tools", "functions": "tools"}
_NO_THREAD = 'name the conversation in the header X-Conversation-Id, or in the body as "metadata": {"thread_id": ...}'
_STATES = {"max_tokens": "length", "length": "length", "content_filter": "content_filter", "refusal": "content_filter"}


class Refused(Exception):  # noqa: N818 - an answer, not a failure
    """A request that is answered with an error of the protocol."""

    def __init__(self, status: int, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        kind = "invalid_request_error" if status < 500 else "server_error"
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request for an answer."""

    messages: list[BaseMessage]
    model: str
    thread_id: str | None  # None: nothing is remembered
    is_streamed: bool
    with_usage: bool


def asked(body: bytes, headers: Any, name: str) -> Asked:
    """Read a request to the model `name`, or to its twin for tasks; raises `Refused`."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON") from None
    if not isinstance(given, dict):
        raise Refused(400, "the body is not a JSON object")
    model = given.get("model")
    if model not in (name, name + TASKS):
        raise Refused(
            404, f"there is no model {model!r}; GET /v1/models lists them", code="model_not_found", param="model"
        )
    for key in ("tools", "functions"):
        if given.get(key):
            raise Refused(
                400, "the agent runs tools of its own, and calls none of a client: leave out tools", param=key
            )
    if given.get("n", 1) not in (None, 1):
        raise Refused(400, "there is one answer to a request: leave out n", param="n")
    if given.get("response_format") not in (None, {"type": "text"}):
        raise Refused(400, "the agent decides the form of its answers: leave it out", param="response_format")
    options = given.get("stream_options")
    return Asked(
        messages=_messages(given.get("messages")),
        model=model,
        thread_id=None if model != name else _thread(given, headers),
        is_streamed=given.get("stream") is True,
        with_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )


def _messages(sent: Any) -> list[BaseMessage]:
    if not isinstance(sent, list) or not all(isinstance(one, dict) and one.get("role") in _ROLES for one in sent):
        raise Refused(400, "messages is no list of messages with a role", param="messages")
    if not sent or sent[-1]["role"] not in {"user", "tool"}:
        raise Refused(400, "the last message is not the user's", param="messages")
    try:
        messages = convert_to_messages(
            [{key: one[key] for key in _KEYS if one.get(key) is not None} | _content(one) for one in sent]
        )
    except Exception as error:  # of LangChain and pydantic, about what a client has sent
        raise Refused(400, f"messages cannot be read: {str(error)[:200]}", param="messages") from error
    return messages


def _content(message: dict[str, Any]) -> dict[str, Any]:
    """Return the content; of an answer only what stands after the signs."""
    content = message.get("content") or ""
    if message["role"] == "assistant":
        if isinstance(content, str):
            content = content.rpartition(_SIGNS)[2]
        elif isinstance(content, list) and (texts := [at for at, one in enumerate(content) if _SIGNS in str(one)]):
            last = content[texts[-1]]
            content = [{**last, "text": str(last["text"]).rpartition(_SIGNS)[2]}, *content[texts[-1] + 1 :]]
    return {"content": content}


def _thread(given: dict[str, Any], headers: Any) -> str:
    for name in THREAD_HEADERS:
        if found := headers.get(name):
            return str(found)
    metadata = given.get("metadata")
    found = metadata.get("thread_id") if isinstance(metadata, dict) else None
    if not isinstance(found, str) or not found:
        raise Refused(400, _NO_THREAD, code="thread_missing", param="metadata.thread_id")
    return found


# ---------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the agent has answered in the end."""

    text: str
    finish_reason: str = "stop"


def answer_of(result: Any) -> Answer:
    """Read what a run has returned: a state with messages, a message or a text."""
    messages: Sequence[Any] = result.get("messages") or () if isinstance(result, dict) else (result,)
    if isinstance(result, dict) and result.get("__interrupt__"):
        raise Refused(501, "the agent waits for a person's decision, which this protocol cannot ask for")
    last = messages[-1] if messages else ""
    text = last if isinstance(last, str) else str(last.text)
    structured = result.get("structured_response") if isinstance(result, dict) else None
    if structured is not None and not (isinstance(last, AIMessage) and text):
        text = structured.model_dump_json() if hasattr(structured, "model_dump_json") else json.dumps(structured)
    about = getattr(last, "response_metadata", {})
    reason = str(about.get("finish_reason") or about.get("stop_reason") or "").lower()
    return Answer(text=text, finish_reason=_STATES.get(reason, "stop"))


def usage_of(usage: UsageMetadata | None) -> dict[str, int]:
    """Return the tokens of all model calls of the run; 0 where the models do not count."""
    read, written = (usage["input_tokens"], usage["output_tokens"]) if usage else (0, 0)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def refused_for(error: Exception) -> Refused | None:
    """Return the answer to an error of memory or of a provider; None: the agent is broken."""
    match error:
        case Refused():
            return error
        case ThreadOwnershipError():  # the same as any id that cannot be used, whoever owns it
            return Refused(404, "there is no such conversation", code="thread_not_found")
        case IdError() | OptionError():
            return Refused(400, str(error))
        case ResourceDeletedError():
            return Refused(409, "the data of this user are being deleted: try again later")
        case RedisConnectionError():
            return Refused(503, "memory cannot be reached: try again later")
    status = getattr(error, "status_code", None)  # of the SDKs of providers
    if status in {400, 413, 422}:
        return Refused(status, "the model refused the request, which may be too long")
    if status == 429:
        return Refused(429, "the model has too many requests: try again later", code="rate_limit_exceeded")
    return None
