"""Logs of OpenAI's APIs: Chat Completions and Responses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from uuid import NAMESPACE_OID, UUID, uuid5

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call

from langchain_workingmem._redis.codec import UNREADABLE
from langchain_workingmem.checks import check_list
from langchain_workingmem.errors import OptionError
from langchain_workingmem.importers.exports import moment, records_of
from langchain_workingmem.users.archive import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage, ToolCall


def from_openai(
    conversations: Mapping[str, Iterable[Mapping[str, Any]]] | Iterable[Any], *, user_id: str | None = None
) -> Iterator[dict[str, Any]]:
    """Turn logs of OpenAI's APIs into records: a dict of thread ids and lists of messages, or a list of conversations.

    A conversation is a list of messages (Chat Completions) or items (Responses), or a dict with `messages` as for
    fine-tuning (and `choices`), or with `input` and `output`. Such a dict may have an `id`, `title`, `metadata` and
    `created_at`; so may a message an `id` and `created_at` (Unix seconds or ISO 8601). Without a time, a message gets
    that of the import.

    An id that is not given comes from the content; that of a thread also from `user_id`, the owner. So a second
    import adds nothing, and two users may have said the same. Conversations with the same id continue each other:
    what they repeat is stored once. System and developer messages, reasoning and calls of OpenAI's own tools are left
    out. An error names the conversation and the message, both counted from 0.
    """
    if isinstance(conversations, Mapping):
        conversations = [{"id": id, "messages": messages} for id, messages in conversations.items()]
    check_list(conversations, "conversations", "a list of conversations, or a dict of thread ids and lists of messages")
    yield header(user_id)
    copies: Counter[UUID] = Counter()  # of conversations without an id
    for number, given in enumerate(conversations):
        conversation = _Conversation(given if isinstance(given, Mapping) else {"messages": given})
        try:
            records = conversation.records(user_id, copies)
        except (*UNREADABLE, OSError, OutputParserException) as error:
            seen = f"conversation {number}{conversation.where} is not of OpenAI's form ({error!r})"
            raise OptionError(seen, remedy="pass conversations: lists of messages, or dicts with messages") from error
        yield from records


class _Conversation:
    """One conversation of a log."""

    def __init__(self, log: Mapping[str, Any]) -> None:
        self.log = log
        self.where = ""  # what is read at present, for errors
        self.call = "call"  # the last call of a tool; those of the old `function_call` have no ids
        self.dropped = 0

    def records(self, owner: str | None, copies: Counter[UUID]) -> list[dict[str, Any]]:
        """Return the thread and its messages."""
        log, items = self.log, self._items()
        thread_id = log.get("thread_id") or log.get("conversation_id") or log.get("id")
        if thread_id is None:
            same = uuid5(NAMESPACE_OID, json.dumps([owner, items], sort_keys=True))
            thread_id = uuid5(same, str(copies[same]))
            copies[same] += 1
        began = at = moment(log.get("created_at") or log.get("created"))
        messages: list[tuple[BaseMessage, str | None]] = []
        for position, given in self._messages(items):
            self.where = f", message {position}"
            at = moment(given.get("created_at")) or at
            message = self._message(given)
            if message is None:
                self.dropped += 1
                continue
            calls = given.get("tool_calls") or given.get("function_call") or []
            said = [given["role"], message.content, calls, given.get("tool_call_id")]
            content = json.dumps([str(thread_id), len(messages), *said], sort_keys=True)
            message.id = str(given.get("id") or uuid5(NAMESPACE_OID, content))
            messages.append((message, at))
        thread = {"id": str(thread_id), "title": log.get("title"), "created_at": began, "updated_at": at}
        thread["metadata"] = {**(log.get("metadata") or {}), "source": "openai"}
        return records_of(thread, messages, self.dropped)

    def _items(self) -> list[Any]:
        log = self.log
        if "messages" in log:
            return [*log["messages"], *(choice["message"] for choice in (log.get("choices") or [])[:1])]
        if not log.keys() & {"input", "output"}:
            raise LookupError("it has no messages")
        asked = log.get("input") or []
        asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        return [*asked, *(log.get("output") or [])]

    def _messages(self, items: list[Any]) -> list[tuple[int, dict[str, Any]]]:
        """Return messages with their positions; items of Responses between two inputs are one answer."""
        found: list[tuple[int, dict[str, Any]]] = []
        goes_on = False  # the last one is an answer of several items
        for position, item in enumerate(items):
            self.where = f", message {position}"
            message = _from_item(item)
            if message is None:
                self.dropped += 1
                continue
            is_part = "type" in item and message["role"] == "assistant"
            if is_part and goes_on:
                _, answer = found[-1]
                answer["content"] = [*_as_parts(answer["content"]), *_as_parts(message["content"])]
                answer["tool_calls"] = [*answer.get("tool_calls", ()), *message.get("tool_calls", ())]
            else:
                found.append((position, message))
            goes_on = is_part
        return found

    def _message(self, given: Mapping[str, Any]) -> BaseMessage | None:
        """Return the message of LangChain; None for what is not stored, and for an answer without content."""
        role, content, name = given["role"], given["content"], given.get("name")
        match role:
            case "system" | "developer":
                return None
            case "user":
                return HumanMessage(content or "", name=name) if content else None
            case "tool" | "function":
                return ToolMessage(content or "", tool_call_id=given.get("tool_call_id") or self.call, name=name)
            case "assistant":
                return self._answer(given)
        raise ValueError(f"role {role!r}")

    def _answer(self, given: Mapping[str, Any]) -> AIMessage | None:
        content = given["content"] or given.get("refusal") or (given.get("audio") or {}).get("transcript")
        raw = list(given.get("tool_calls") or ())
        if given.get("function_call"):
            raw.append({"id": f"{self.call}+", "function": given["function_call"]})
        if not content and not raw:
            return None
        message = AIMessage(content or "", name=given.get("name"))
        for one in raw:
            self.call = one["id"]
            custom = one.get("custom")
            made = custom and {"name": custom["name"], "arguments": json.dumps({"input": custom["input"]})}
            call = {"id": one["id"], "function": made or one["function"]}
            try:
                parsed = parse_tool_call(call)
            except OutputParserException as error:  # what the model wrote is not JSON
                message.invalid_tool_calls.append(make_invalid_tool_call(call, str(error)))
            else:
                message.tool_calls.append(cast("ToolCall", parsed))
        return message


def _from_item(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an item of Responses as a message of Chat Completions, None for what is left out; a message is kept."""
    match item.get("type", "message"):
        case "message":
            return {**item, "content": _content(item)}
        case "function_call":
            call = {"id": item["call_id"], "function": {"name": item["name"], "arguments": item["arguments"]}}
        case "custom_tool_call":
            call = {"id": item["call_id"], "custom": item}
        case "function_call_output" | "custom_tool_call_output":
            output = _content({"content": item["output"]})
            return {"role": "tool", "content": output, "tool_call_id": item["call_id"], "id": item.get("id")}
        case _:
            return None
    return {"role": "assistant", "content": "", "tool_calls": [call], "id": item.get("id")}


def _content(message: Mapping[str, Any]) -> Any:
    """Return content in the form of Chat Completions; a single text is a str."""
    content = message.get("content") if message.get("role") == "assistant" else message["content"]
    if content is None or isinstance(content, str):
        return content
    parts = [_part(part) for part in content]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "input_text" | "output_text" | "refusal":
            return {"type": "text", "text": part.get("text") or part["refusal"]}
        case "input_image" if part.get("image_url"):
            return {"type": "image_url", "image_url": {"url": part["image_url"]}}
        case "input_image" | "input_file":
            return {"type": "file", "file": {name: value for name, value in part.items() if name != "type"}}
    return dict(part)


def _as_parts(content: Any) -> list[Any]:
    return ([{"type": "text", "text": content}] if content else []) if isinstance(content, str | None) else content
