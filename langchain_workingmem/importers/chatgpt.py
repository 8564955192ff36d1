"""The data export of ChatGPT."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_workingmem._redis.codec import UNREADABLE
from langchain_workingmem.errors import OptionError
from langchain_workingmem.importers.records import check_list, message_record, moment
from langchain_workingmem.users.archive import header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.importers.records import Record

_INTERNAL = {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error"}


def from_chatgpt(conversations: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
    """Turn the `conversations.json` of a ChatGPT data export, read by `json.load`, into records.

    Each conversation becomes a thread with the branch that was shown last. Ids, titles and times stay. Messages that ChatGPT
    hides (system prompts, custom instructions, thoughts) are left out. Tool calls and results become those of LangChain. An
    image becomes a note with its name, because the export keeps images in other files.
    """
    check_list(conversations, "conversations", "the list that json.load(file) returns")
    yield header()
    for number, conversation in enumerate(conversations):
        try:
            yield from list(_thread(conversation))
        except (*UNREADABLE, OSError) as error:  # OSError: a time that the system cannot convert to a date
            seen = f"conversation {number} is not a valid ChatGPT conversation ({error!r})"
            raise OptionError(seen, remedy="pass the list of conversations.json") from error


def _thread(conversation: Mapping[str, Any]) -> Iterator[Record]:
    thread_id = conversation.get("conversation_id") or conversation["id"]
    began = conversation.get("create_time")
    yield {
        "kind": "thread",
        "id": thread_id,
        "title": conversation.get("title"),
        "metadata": {"source": "chatgpt"},
        "created_at": moment(began),
        "updated_at": moment(conversation.get("update_time") or began),
    }
    call, at = None, began
    for node in _branch(conversation):
        message = _message(node, call)
        if message is not None:
            if isinstance(message, AIMessage):
                call = message.id if message.tool_calls else None
            at = node.get("create_time") or at
            yield message_record(thread_id, message, moment(at))


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
