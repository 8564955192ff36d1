"""The data export of ChatGPT and lists of LangChain; and the records that all importers make."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, message_to_dict, messages_from_dict

from langchain_workingmem._redis.codec import UNREADABLE, is_storable
from langchain_workingmem.checks import check_list, wrong_type
from langchain_workingmem.errors import OptionError
from langchain_workingmem.users.archive import header

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from langchain_core.messages import BaseMessage

    Said: TypeAlias = tuple[BaseMessage, str | None]  # a message and its time, None: that of the import

_INTERNAL = {"thoughts", "reasoning_recap", "user_editable_context", "model_editable_context", "system_error"}


def records_of(thread: Mapping[str, Any], messages: Iterable[Said], dropped: int) -> list[dict[str, Any]]:
    """Return the record of a thread, which counts what was `dropped`, and those of its messages."""
    told = (
        {"kind": "message", "thread_id": thread["id"], "stored_at": at, "message": message_to_dict(message)}
        for message, at in messages
    )
    return [{"kind": "thread", **thread, "dropped": dropped}, *told]


def moment(time: float | str | None) -> str | None:
    """Return a Unix time, or one in ISO 8601, as records have it; UTC unless it says another zone."""
    if time is None:
        return None
    at = datetime.fromisoformat(time) if isinstance(time, str) else datetime.fromtimestamp(time, UTC)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


def from_langchain(threads: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[dict[str, Any]]:
    """Turn lists of `messages_to_dict`, by thread id, into records.

    A message without an id gets one from its thread and position, so that a second import adds nothing. System
    messages and summaries are left out. Such lists contain no times: each message gets the time of the import.
    """
    if not isinstance(threads, Mapping):
        raise wrong_type(threads, "threads", "pass a dict of thread ids and lists of messages_to_dict")
    yield header()
    for thread_id, given in threads.items():
        check_list(given, f"thread {thread_id!r}", "a list of messages_to_dict")
        messages: list[BaseMessage] = []
        for position, one in enumerate(given):
            try:
                messages += messages_from_dict([dict(one)])
            except UNREADABLE as error:
                seen = f"thread {thread_id!r}, message {position} is not a message of messages_to_dict ({error!r})"
                raise OptionError(seen, remedy="pass lists of messages_to_dict") from error
            messages[-1].id = messages[-1].id or str(uuid5(NAMESPACE_OID, f"{thread_id}/{position}"))
        stored = [(message, None) for message in messages if is_storable(message)]
        yield from records_of({"id": thread_id}, stored, len(messages) - len(stored))


def from_chatgpt(conversations: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Turn the `conversations.json` of a ChatGPT data export, read by `json.load`, into records.

    Each conversation becomes a thread with the branch that was shown last. Ids, titles and times stay. Messages that
    ChatGPT hides (system prompts, custom instructions, thoughts) are left out. Tool calls and results become those of
    LangChain. An image becomes a note with its name, because the export keeps images in other files.
    """
    check_list(conversations, "conversations", "the list that json.load(file) returns")
    yield header()
    for number, conversation in enumerate(conversations):
        try:
            records = _read_chat(conversation)
        except (*UNREADABLE, OSError) as error:  # OSError: a time that the system cannot convert to a date
            seen = f"conversation {number} is not a valid ChatGPT conversation ({error!r})"
            raise OptionError(seen, remedy="pass the list of conversations.json") from error
        yield from records


def _read_chat(conversation: Mapping[str, Any]) -> list[dict[str, Any]]:
    began, call = conversation.get("create_time"), None
    thread = {
        "id": conversation.get("conversation_id") or conversation["id"],
        "title": conversation.get("title"),
        "metadata": {"source": "chatgpt"},
        "created_at": moment(began),
        "updated_at": moment(conversation.get("update_time") or began),
    }
    branch, at = _branch(conversation), began
    messages: list[Said] = []
    for node in branch:
        message = _message(node, call)
        if message is not None:
            if isinstance(message, AIMessage):
                call = message.id if message.tool_calls else None
            at = node.get("create_time") or at
            messages.append((message, moment(at)))
    return records_of(thread, messages, len(branch) - len(messages))


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
    parts = content["parts"] if "parts" in content else [content.get("text") or content.get("result") or ""]
    text = "\n".join(filter(None, map(_part, parts)))
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
