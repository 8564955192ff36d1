"""Threads of other programs as records for `Memory.users.load`: of ChatGPT, OpenAI's APIs and LangChain."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from uuid import NAMESPACE_OID, UUID, uuid5

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call

from langchain_workingmem._redis.codec import UNREADABLE, is_storable
from langchain_workingmem._text.messages import KINDS
from langchain_workingmem.checks import check_list
from langchain_workingmem.errors import OptionError
from langchain_workingmem.users.archive import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import ToolCall

    Said: TypeAlias = tuple[BaseMessage, str | None]  # a message and its time, None: that of the import

__all__ = ["from_chatgpt", "from_langchain", "from_openai", "header"]
_CITATION = re.compile("\ue200[^\ue201]*\ue201")  # as ChatGPT marks one in a text
_LANGCHAIN = {*KINDS, "system"}  # types of its messages
_PARTS = {"message", "function_call", "custom_tool_call"}  # items of Responses of which an answer may have several
_INTERNAL = {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error"}


def records_of(thread: Mapping[str, Any], messages: Iterable[Said], dropped: int) -> list[dict[str, Any]]:
    """Return the record of a thread, which counts what was `dropped`, and those of its messages."""
    common = {"kind": "message", "thread_id": thread["id"]}
    records = [{**common, "stored_at": time, "message": message_to_dict(message)} for message, time in messages]
    return [{"kind": "thread", **thread, "dropped": dropped}, *records]


def moment(time: float | str | None) -> str | None:
    """Return a Unix time, or one in ISO 8601, as records have it; UTC unless it says another zone."""
    if time is None:
        return None
    parsed = datetime.fromisoformat(time) if isinstance(time, str) else datetime.fromtimestamp(time, UTC)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).isoformat()


def message_of(value: Any) -> BaseMessage:
    """Return a message of LangChain, from `messages_to_dict`, `dumpd` or the flat form of LangGraph's servers."""
    if isinstance(value, BaseMessage):
        return value.model_copy()
    fields = value["kwargs"] if "lc" in value else value
    return messages_from_dict([dict(fields) if "data" in fields else {"type": fields["type"], "data": fields}])[0]


def from_langchain(threads: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Turn messages of LangChain into records: lists by thread id, or the threads that a LangGraph server returns.

    A message is an object, or a dict of `messages_to_dict`, of `dumpd`, or as LangGraph's servers and streams write it.
    One without an id gets one from its thread and position, so that a second import adds nothing. System messages and
    summaries are left out. Each message gets the time of the import. Of a server's thread (`thread_id`,
    `values["messages"]`) the times and the metadata stay.
    """
    if isinstance(threads, Mapping):
        threads = [{"thread_id": id, "values": {"messages": messages}} for id, messages in threads.items()]
    check_list(threads, "threads", "a dict of thread ids and lists of messages, or threads of a LangGraph server")
    yield header()
    for number, thread in enumerate(threads):
        if not isinstance(thread, Mapping) or "thread_id" not in thread:
            remedy = "pass a dict of thread ids and lists of messages; in the shell a list with --thread"
            raise OptionError(f"thread {number} has no thread_id", remedy=remedy)
        thread_id, raw_messages = thread["thread_id"], (thread.get("values") or {}).get("messages") or ()
        check_list(raw_messages, f"thread {thread_id!r}", "a list of messages")
        messages: list[BaseMessage] = []
        for position, raw_message in enumerate(raw_messages):
            try:
                messages.append(message_of(raw_message))
            except UNREADABLE as error:
                reason = f"thread {thread_id!r}, message {position} is not a message of LangChain ({error!r})"
                raise OptionError(reason, remedy="pass messages, or dicts of messages_to_dict or dumpd") from error
            messages[-1].id = messages[-1].id or str(uuid5(NAMESPACE_OID, f"{thread_id}/{position}"))
        stored = [(message, None) for message in messages if is_storable(message)]
        times = {name: moment(thread[name]) for name in ("created_at", "updated_at") if thread.get(name)}
        record = {"id": thread_id, **times, "metadata": thread.get("metadata") or {}}
        yield from records_of(record, stored, len(messages) - len(stored))


def from_chatgpt(conversations: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Turn the `conversations.json` of a ChatGPT data export, read by `json.load`, into records.

    Each conversation becomes a thread with the branch that was shown last. Ids, titles and times stay. What ChatGPT
    hides (system prompts, custom instructions, thoughts) is left out, and so are marks of citations. Tool calls and
    results become those of LangChain. An image becomes a note with its name, because the export keeps images in other
    files. A conversation that cannot be read is left out, and named in `ImportReport.unread`.
    """
    check_list(conversations, "conversations", "the list that json.load(file) returns")
    yield header()
    for number, conversation in enumerate(conversations):
        try:
            records = _read_chat(conversation)
        except (*UNREADABLE, OSError) as error:  # OSError: a time that the system cannot convert to a date
            title = conversation.get("title") if isinstance(conversation, Mapping) else None
            name = f"conversation {number} {title or ''}".strip()
            records = [{"kind": "unread", "name": name, "problem": repr(error)}]
        yield from records


def _read_chat(conversation: Mapping[str, Any]) -> list[dict[str, Any]]:
    created_at, call = conversation.get("create_time"), None
    thread = {
        "id": conversation.get("conversation_id") or conversation["id"],
        "title": conversation.get("title"),
        "metadata": {"source": "chatgpt"},
        "created_at": moment(created_at),
        "updated_at": moment(conversation.get("update_time") or created_at),
    }
    branch, time = _branch(conversation), created_at
    messages: list[Said] = []
    for node in branch:
        message = _message(node, call)
        if message is not None:
            if isinstance(message, AIMessage):
                call = message.id if message.tool_calls else None
            time = node.get("create_time") or time
            messages.append((message, moment(time)))
    return records_of(thread, messages, len(branch) - len(messages))


def _branch(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages from the first to the last one that was shown."""
    mapping = conversation["mapping"]
    node_id: Any = conversation.get("current_node")
    if node_id not in mapping:
        node_id = [id for id in mapping if not mapping[id].get("children")][-1]
    branch: dict[str, Mapping[str, Any]] = {}
    while node_id in mapping and node_id not in branch:
        branch[node_id] = mapping[node_id]
        node_id = mapping[node_id].get("parent")
    return [node["message"] for node in reversed(branch.values()) if node.get("message")]


def _message(node: Mapping[str, Any], call: str | None) -> BaseMessage | None:
    """Convert a message, to None if ChatGPT does not show it. `call` is the open tool call."""
    content, metadata, author = node["content"], node.get("metadata") or {}, node["author"]
    parts = content.get("parts") or [content.get("text") or content.get("result") or ""]
    text = _CITATION.sub("", "\n".join(filter(None, map(_part, parts))))
    hidden = metadata.get("is_visually_hidden_from_conversation") or content.get("content_type") in _INTERNAL
    if hidden or not text.strip():
        return None
    id, recipient = node["id"], node.get("recipient") or "all"
    match author["role"]:
        case "user":
            return HumanMessage(text, id=id)
        case "assistant":
            model = {"model_name": metadata["model_slug"]} if metadata.get("model_slug") else {}
            if recipient == "all":
                return AIMessage(text, id=id, response_metadata=model)
            calls = [{"name": recipient, "args": {"input": text}, "id": id, "type": "tool_call"}]
            return AIMessage("", id=id, tool_calls=calls, response_metadata=model)
        case "tool" if call is not None:
            return ToolMessage(text, id=id, tool_call_id=call, name=author.get("name"))
    return None


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else ""
    if part.get("text"):  # a transcription
        return str(part["text"])
    kind = str(part.get("content_type") or "attachment").removesuffix("_asset_pointer")
    return f"[{kind}: {part['asset_pointer']}]" if part.get("asset_pointer") else f"[{kind}]"


def from_openai(
    conversations: Mapping[str, Iterable[Mapping[str, Any]]] | Iterable[Any], *, user_id: str | None = None
) -> Iterator[dict[str, Any]]:
    """Turn logs of OpenAI's APIs into records: a dict of thread ids and lists of messages, or a list of conversations.

    A conversation is a list of messages (Chat Completions, or of LangChain) or items (Responses), or a dict with
    `messages` and `choices`, with `input` and `output`, or a line of a batch. Such a dict may have an `id`, `title`,
    `metadata` and `created_at`; so may a message an `id` and `created_at` (Unix seconds or ISO 8601). Without a time, a
    message gets that of the import.

    An id that is not given comes from the content; that of a thread also from `user_id`, the owner. So a second import
    adds nothing, and two users may have said the same. Conversations with the same id continue each other: what they
    repeat is stored once. System and developer messages, reasoning and calls of OpenAI's own tools are left out. An
    error names the conversation and the message, both counted from 0.
    """
    if isinstance(conversations, Mapping):
        conversations = [{"id": id, "messages": messages} for id, messages in conversations.items()]
    check_list(conversations, "conversations", "a list of conversations, or a dict of thread ids and lists of messages")
    yield header(user_id)
    copies: Counter[UUID] = Counter()  # of conversations without an id
    for number, log in enumerate(conversations):
        conversation = _Conversation(log if isinstance(log, Mapping) else {"messages": log})
        try:
            records = conversation.records(user_id, copies)
        except (*UNREADABLE, OSError, OutputParserException) as error:
            reason = f"conversation {number}{conversation.where} is not of OpenAI's form ({error!r})"
            raise OptionError(reason, remedy="pass conversations: lists of messages, or dicts with messages") from error
        yield from records


class _Conversation:
    """One conversation of a log."""

    def __init__(self, log: Mapping[str, Any]) -> None:
        body = log.get("body") or (log.get("response") or {}).get("body")  # of a line of a batch
        self.log = {**body, "id": log.get("custom_id")} if body else log
        self.where = ""  # what is read at present, for errors
        self.dropped = 0

    def records(self, owner: str | None, copies: Counter[UUID]) -> list[dict[str, Any]]:
        """Return the thread and its messages."""
        log, items = self.log, self._items()
        thread_id = log.get("thread_id") or log.get("conversation_id") or log.get("id")
        if thread_id is None:
            content_id = uuid5(NAMESPACE_OID, json.dumps([owner, items], sort_keys=True))
            thread_id = uuid5(content_id, str(copies[content_id]))
            copies[content_id] += 1
        created_at = updated_at = moment(log.get("created_at") or log.get("created"))
        messages: list[tuple[BaseMessage, str | None]] = []
        for position, fields in self._messages(items):
            self.where = f", message {position}"
            updated_at = moment(fields.get("created_at")) or updated_at
            message = _as_message(fields)
            if message is None:
                self.dropped += 1
                continue
            parts = fields["role"], message.content, fields.get("tool_calls") or [], fields.get("tool_call_id")
            content = json.dumps([str(thread_id), len(messages), *parts], sort_keys=True)
            message.id = str(fields.get("id") or uuid5(NAMESPACE_OID, content))
            messages.append((message, updated_at))
        thread = {"id": str(thread_id), "title": log.get("title"), "created_at": created_at, "updated_at": updated_at}
        thread["metadata"] = {**(log.get("metadata") or {}), "source": "openai"}
        return records_of(thread, messages, self.dropped)

    def _items(self) -> list[Any]:
        if not self.log.keys() & {"messages", "choices", "input", "output"}:
            raise LookupError("it has no messages")
        inputs = self.log.get("input") or []
        inputs = [{"role": "user", "content": inputs}] if isinstance(inputs, str) else inputs
        choices = (choice["message"] for choice in (self.log.get("choices") or [])[:1])
        return [*(self.log.get("messages") or []), *inputs, *choices, *(self.log.get("output") or [])]

    def _messages(self, items: list[Any]) -> list[tuple[int, dict[str, Any]]]:
        """Return messages with their positions; items of Responses between two inputs are one answer."""
        messages: list[tuple[int, dict[str, Any]]] = []
        goes_on = False  # the last one is an answer of several items
        for position, item in enumerate(items):
            self.where = f", message {position}"
            message = _from_item(item)
            if message is None:
                self.dropped += 1
                continue
            is_part = message["role"] == "assistant" and isinstance(item, Mapping) and item.get("type") in _PARTS
            if is_part and goes_on:
                _, answer = messages[-1]
                answer["content"] = [*_as_parts(answer["content"]), *_as_parts(message["content"])]
                answer["tool_calls"] = [*answer.get("tool_calls", ()), *message.get("tool_calls", ())]
            else:
                messages.append((position, message))
            goes_on = is_part
        return messages


def _as_message(fields: Mapping[str, Any]) -> BaseMessage | None:
    """Return the message of LangChain; None for what is not stored, and for what has no content."""
    role, content, name = fields["role"], fields["content"], fields.get("name")
    calls = fields.get("tool_calls") or ()
    if role in {"system", "developer"}:
        return None
    if role == "tool":
        return ToolMessage(content or "", tool_call_id=fields["tool_call_id"], name=name)
    if role == "assistant" and not fields.get("function_call"):
        content = content or fields.get("refusal") or (fields.get("audio") or {}).get("transcript")
    elif role != "user":
        raise ValueError(f"role {role!r}, or its function_call")
    if not content and not calls:
        return None
    if role == "user":
        return HumanMessage(content, name=name)
    answer = AIMessage(content or "", name=name)
    for raw_call in calls:
        custom = raw_call.get("custom")
        function = custom and {"name": custom["name"], "arguments": {"input": custom["input"]}}
        function = dict(function or raw_call["function"])
        if not isinstance(function["arguments"], str):
            function["arguments"] = json.dumps(function["arguments"])
        call = {"id": raw_call["id"], "function": function}
        try:
            answer.tool_calls.append(cast("ToolCall", parse_tool_call(call)))
        except OutputParserException as error:  # what the model wrote is not JSON
            answer.invalid_tool_calls.append(make_invalid_tool_call(call, str(error)))
    return answer


def _from_item(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an item of Responses as a message of Chat Completions, None for what is left out; a message is kept."""
    if isinstance(item, BaseMessage) or "lc" in item or item.get("type") in _LANGCHAIN:
        return convert_to_openai_messages(message_of(item), include_id=True)
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
    parts = []
    for part in content:
        match part["type"]:
            case "input_text" | "output_text" | "refusal":
                parts.append({"type": "text", "text": part["refusal" if part["type"] == "refusal" else "text"]})
            case "input_image" if part.get("image_url"):
                parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
            case "input_image" | "input_file":
                file = {name: value for name, value in part.items() if name != "type"}
                parts.append({"type": "file", "file": file})
            case _:
                parts.append(dict(part))
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _as_parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
