"""Convert threads of other programs into records for `Memory.import_resource`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict, messages_from_dict

from langchain_workingmem._redis.codec import is_storable
from langchain_workingmem.checks import wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.users import UNREADABLE, header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage

Record = dict[str, Any]
_INTERNAL = {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error"}


def from_langchain(threads: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[Record]:
    """Turn lists of `messages_to_dict`, by thread id, into records.

    A message without an id gets one from its thread and position, so that a second import adds nothing. System messages and
    summaries are left out. Such lists contain no times: each message gets the time of the import.
    """
    if not isinstance(threads, Mapping):
        raise wrong_type(threads, "threads", "pass a dict of thread ids and lists of messages_to_dict")
    yield header()
    for thread_id, messages in threads.items():
        _check_list(messages, f"thread {thread_id!r}", "a list of messages_to_dict")
        yield {"kind": "thread", "id": thread_id}
        for position, given in enumerate(messages):
            try:
                (message,) = messages_from_dict([dict(given)])
            except UNREADABLE as error:
                seen = f"thread {thread_id!r}, message {position} is not a message of messages_to_dict ({error!r})"
                raise OptionError(seen, remedy="pass lists of messages_to_dict") from error
            message.id = message.id or str(uuid5(NAMESPACE_OID, f"{thread_id}/{position}"))
            if is_storable(message):
                yield _record(thread_id, message, None)


def from_chatgpt(conversations: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    """Turn the `conversations.json` of a ChatGPT data export, read by `json.load`, into records.

    Each conversation becomes a thread with the branch that was shown last. Ids, titles and times stay. Messages that ChatGPT
    hides (system prompts, custom instructions, thoughts) are left out. Tool calls and results become those of LangChain. An
    image becomes a note with its name, because the export keeps images in other files.
    """
    _check_list(conversations, "conversations", "the list that json.load(file) returns")
    yield header()
    for number, conversation in enumerate(conversations):
        try:
            yield from list(_thread(conversation))
        except (*UNREADABLE, OSError) as error:  # OSError: a time that the system cannot convert to a date
            seen = f"conversation {number} is not a valid ChatGPT conversation ({error!r})"
            raise OptionError(seen, remedy="pass the list of conversations.json") from error


def _check_list(value: Any, name: str, wanted: str) -> None:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_type(value, name, f"pass {wanted}")


def _thread(conversation: Mapping[str, Any]) -> Iterator[Record]:
    thread_id = conversation.get("conversation_id") or conversation["id"]
    began = conversation.get("create_time")
    yield {
        "kind": "thread",
        "id": thread_id,
        "title": conversation.get("title"),
        "metadata": {"source": "chatgpt"},
        "created_at": _time(began),
        "updated_at": _time(conversation.get("update_time") or began),
    }
    call, at = None, began
    for node in _branch(conversation):
        message = _message(node, call)
        if message is not None:
            if isinstance(message, AIMessage):
                call = message.id if message.tool_calls else None
            at = node.get("create_time") or at
            yield _record(thread_id, message, _time(at))


def _branch(conversation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the messages from the first to the last one that was shown."""
    mapping = conversation["mapping"]
    leaves = (id for id in reversed(mapping) if not mapping[id].get("children"))
    at = conversation.get("current_node") or next(leaves, None)
    branch: dict[str, Mapping[str, Any]] = {}
    while at is not None and at not in branch:
        branch[at] = mapping[at]
        at = mapping[at].get("parent")
    return [node["message"] for node in reversed(branch.values()) if node.get("message")]


def _message(node: Mapping[str, Any], call: str | None) -> BaseMessage | None:
    """Convert a message, to None if ChatGPT does not show it. `call` is the open tool call."""
    content, metadata, author = node["content"], node.get("metadata") or {}, node["author"]
    text = _text(content)
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


def _text(content: Mapping[str, Any]) -> str:
    parts = content["parts"] if "parts" in content else [content.get("text") or content.get("result") or ""]
    return "\n".join(filter(None, map(_part, parts)))


def _part(part: Any) -> str:
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else ""
    if part.get("text"):  # a transcription
        return str(part["text"])
    kind = str(part.get("content_type") or "attachment").removesuffix("_asset_pointer")
    return f"[{kind}: {part['asset_pointer']}]" if part.get("asset_pointer") else f"[{kind}]"


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _record(thread_id: str, message: BaseMessage, stored_at: str | None) -> Record:
    return {"kind": "message", "thread_id": thread_id, "stored_at": stored_at, "message": message_to_dict(message)}
