"""Histories of other programs become threads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    messages_to_dict,
)

from langchain_workingmem import Memory, OptionError
from langchain_workingmem.importers import from_chatgpt, from_langchain, from_openai
from tests.helpers.threads import thread_of


def node(id: str, parent: str | None, *children: str, role: str = "user", at: float | None = None, **more: Any) -> Any:
    """Make a node as ChatGPT exports it; `text` or `content` is what it says."""
    content = more.pop("content", {"content_type": "text", "parts": [more.pop("text", None)]})
    author = {"role": role, "name": more.pop("name", None), "metadata": {}}
    message = {"id": id, "author": author, "create_time": at, "content": content, "metadata": {}, "recipient": "all"}
    return {"id": id, "message": message | more, "parent": parent, "children": list(children)}


HIDDEN = {"is_visually_hidden_from_conversation": True}
IMAGE = {
    "content_type": "multimodal_text",
    "parts": [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-9", "width": 800, "height": 600},
        "What is on this picture?",
        {"content_type": "audio_transcription", "text": "spoken"},
        {"content_type": "video_container"},
        None,
    ],
}
PROFILE = {"content_type": "user_editable_context", "user_profile": "x"}
THOUGHTS = {"content_type": "thoughts", "thoughts": [{"content": "hm"}]}
CODE = {"content_type": "code", "language": "unknown", "text": "1 + 1"}
OUTPUT = {"content_type": "execution_output", "text": "2"}
NODES = [
    {"id": "root", "message": None, "parent": None, "children": ["sys"]},
    node("sys", "root", "ctx", role="system", text="You are ChatGPT", metadata=HIDDEN),
    node("ctx", "sys", "q1", content=PROFILE, metadata=HIDDEN),
    node("q1", "ctx", "a1", "a1b", text="Where is Oslo?", at=1700000000.123456),
    node("a1", "q1", role="assistant", text="In Sweden.", at=1700000001.0),
    node("a1b", "q1", "q2", role="assistant", text="In Norway.", at=1700000002.5, metadata={"model_slug": "gpt-4o"}),
    node("q2", "a1b", "th", content=IMAGE, at=1700000003.0),
    node("th", "q2", "call", role="assistant", content=THOUGHTS),
    node("call", "th", "res", role="assistant", at=1700000004.0, recipient="python", content=CODE),
    node("res", "call", "a2", role="tool", name="python", content=OUTPUT),
    node("a2", "res", "e", role="assistant", text="A dog.", at=1699999999.0),
    node("e", "a2", role="assistant", text="", at=1700000009.0),
]
CONVERSATION: dict[str, Any] = {
    "title": "Oslo",
    "create_time": 1700000000.0,
    "update_time": 1700000010.0,
    "mapping": {node["id"]: node for node in NODES},
    "current_node": "e",
    "conversation_id": "c-1",
    "id": "c-1",
}


def test_a_conversation_of_chatgpt_becomes_a_thread(plain: Memory) -> None:
    report = plain.users.load(from_chatgpt(json.loads(json.dumps([CONVERSATION]))), user_id="u")
    assert (report.threads, report.messages, report.dropped) == (1, 6, 4)
    thread = thread_of(plain, "c-1")
    assert (thread.title, thread.metadata, thread.user_id) == ("Oslo", {"source": "chatgpt"}, "u")
    assert (thread.created_at.timestamp(), thread.updated_at.timestamp()) == (1700000000.0, 1700000010.0)
    rows = plain.history.page("c-1").items
    call = [{"name": "python", "args": {"input": "1 + 1"}, "id": "call", "type": "tool_call"}]
    picture = "[image: file-service://file-9]\nWhat is on this picture?\nspoken\n[video_container]"
    assert [row.message for row in rows] == [
        HumanMessage("Where is Oslo?", id="q1"),
        AIMessage("In Norway.", id="a1b", response_metadata={"model_name": "gpt-4o"}),
        HumanMessage(picture, id="q2"),
        AIMessage("", id="call", tool_calls=call),
        ToolMessage("2", id="res", tool_call_id="call", name="python"),
        AIMessage("A dog.", id="a2"),
    ]
    times = [row.stored_at.timestamp() for row in rows]
    assert times[:4] == [1700000000.123456, 1700000002.5, 1700000003.0, 1700000004.0]
    assert times == sorted(set(times))
    assert times[-1] < 1700000004.1, "a time that falls back stays near"
    assert plain.context("and now?", thread_id="c-1", user_id="u").messages[:6] == [row.message for row in rows]
    assert plain.users.load(from_chatgpt([CONVERSATION]), user_id="u").messages == 0


def test_a_conversation_that_cannot_be_read_is_named_and_the_others_are_imported(plain: Memory) -> None:
    bad: list[Any] = [None, {"id": "c"}, {**CONVERSATION, "create_time": "x", "title": "Old"}, {"mapping": {}}]
    report = plain.users.load(from_chatgpt([*bad, CONVERSATION]), user_id="u")
    assert (report.threads, report.messages) == (1, 6)
    assert [*report.unread] == ["conversation 0", "conversation 1", "conversation 2 Old", "conversation 3"]
    assert report.unread["conversation 1"] == "KeyError('mapping')"


def test_a_damaged_conversation_keeps_what_can_be_read(plain: Memory) -> None:
    nodes = [
        node("q", "lost", "a", text="Where is \ue200cite\ue202turn0\ue201Oslo?"),
        node("a", "q", "n", role="assistant", text="In Norway."),
        node("n", "a", role="assistant", content={"content_type": "text", "parts": None}),
    ]
    damaged = {"id": "c", "mapping": {one["id"]: one for one in nodes}, "current_node": "gone"}
    report = plain.users.load(from_chatgpt([damaged]), user_id="u")
    assert (report.messages, report.dropped, report.unread) == (2, 1, {})
    assert plain.history.messages("c") == [HumanMessage("Where is Oslo?", id="q"), AIMessage("In Norway.", id="a")]


TALK = [
    HumanMessage("look", id="1"),
    AIMessage("", id="2", tool_calls=[{"name": "see", "args": {"at": 1}, "id": "c", "type": "tool_call"}]),
    ToolMessage("a dog", tool_call_id="c", id="3"),
    AIMessage("A dog.", id="4", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}),
]
SUMMARY = HumanMessage("a summary", id="5", additional_kwargs={"lc_source": "summarization"})
GIVEN = [SystemMessage("be kind"), *TALK[:3], AIMessageChunk(**dict(TALK[3]) | {"type": "AIMessageChunk"}), SUMMARY]
FORMS: dict[str, Any] = {
    "objects": GIVEN,
    "dumpd": [dumpd(one) for one in GIVEN],
    "flat": [one.model_dump() for one in GIVEN],
    "to_dict": messages_to_dict(GIVEN),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_langchain_is_read(plain: Memory, form: str) -> None:
    report = plain.users.load(from_langchain({"t": FORMS[form]}), user_id="u")
    assert (report.messages, report.dropped) == (4, 2)
    assert plain.history.messages("t") == TALK
    plain.users.load(from_openai({"log": FORMS[form][:4]}), user_id="u")  # they may also stand in a log of OpenAI
    assert [(one.type, one.text) for one in plain.history.messages("log")] == [(one.type, one.text) for one in TALK[:3]]


def test_threads_of_a_langgraph_server_keep_times_and_metadata(plain: Memory) -> None:
    created = "2026-01-02T03:04:05+00:00"
    thread: Any = {"thread_id": "t", "created_at": created, "metadata": {"graph_id": "agent"}, "status": "idle"}
    thread |= {"updated_at": "2026-01-03T03:04:05+00:00", "values": {"messages": FORMS["flat"], "other": 1}}
    empty: Any = {"thread_id": "new", "created_at": created, "metadata": {}, "values": None}
    report = plain.users.load(from_langchain([thread, empty]), user_id="u")
    assert (report.threads, report.messages) == (2, 4)
    found = thread_of(plain, "t")
    assert (found.metadata, found.created_at.isoformat()) == ({"graph_id": "agent"}, created)


ONE = messages_to_dict([HumanMessage("x")])
REFUSED: list[tuple[Any, Any, str]] = [
    (from_chatgpt, b"text", r"json\.load"),
    (from_langchain, "x", "thread ids"),
    (from_langchain, {"t": [*ONE, {"type": "human", "data": {}}]}, "thread 't', message 1"),
    (from_langchain, {"t": [*ONE, 5]}, "thread 't', message 1"),
    (from_openai, "text", "pass a list of conversations"),
]


@pytest.mark.parametrize(("importer", "given", "words"), REFUSED)
def test_what_is_no_history_is_refused(importer: Any, given: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        list(importer(given))


PARTS: list[Any] = [
    {"type": "text", "text": "What is it?"},
    {"type": "image_url", "image_url": {"url": "https://example.org/dog.png"}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    {"type": "file", "file": {"file_id": "file-1"}},
]
LOOK = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
BROKEN = {"id": "c2", "type": "function", "function": {"name": "look", "arguments": "{at"}}
CHAT: list[Any] = [
    {"role": "system", "content": "Be kind."},
    {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
    {"role": "user", "content": PARTS},
    {"role": "assistant", "content": None, "tool_calls": [LOOK, BROKEN]},
    {"role": "tool", "tool_call_id": "c1", "content": "a dog"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "no JSON"}]},
    {"role": "assistant", "content": None, "refusal": "I cannot say.", "weight": 0},
    {"role": "user", "content": "Add six and seven", "name": "Max"},
    {"role": "assistant", "content": None, "audio": {"id": "a1", "transcript": "Thirteen."}},
    {"role": "assistant", "content": None},
]


def items(*made: Any) -> list[BaseMessage]:
    """Return messages without the ids that come from their content."""
    return [message.model_copy(update={"id": None}) for message in made]


def test_lines_of_a_batch_become_threads(plain: Memory) -> None:
    asked = {"custom_id": "one", "url": "/v1/chat/completions", "body": {"model": "m", "messages": CHAT[7:8]}}
    answer = {"role": "assistant", "content": "Thirteen."}
    answered = {"id": "r", "custom_id": "one", "response": {"body": {"id": "x", "choices": [{"message": answer}]}}}
    plain.users.load(from_openai([asked, answered]), user_id="u")
    assert [one.text for one in plain.history.messages("one")] == ["Add six and seven", "Thirteen."]


def test_chat_completions_become_a_thread(plain: Memory) -> None:
    report = plain.users.load(from_openai(json.loads(json.dumps({"t": CHAT})), user_id="u"))
    assert (report.user_id, report.threads, report.messages, report.dropped) == ("u", 1, 7, 3)
    found = items(*plain.history.messages("t"))
    assert isinstance(found[1], AIMessage)
    assert [(call["id"], call["args"]) for call in found[1].invalid_tool_calls] == [("c2", "{at")]
    found[1].invalid_tool_calls = []
    assert found == [
        HumanMessage(PARTS),
        AIMessage("", tool_calls=[{"name": "look", "args": {"at": 1}, "id": "c1", "type": "tool_call"}]),
        ToolMessage("a dog", tool_call_id="c1"),
        ToolMessage("no JSON", tool_call_id="c2"),
        AIMessage("I cannot say."),
        HumanMessage("Add six and seven", name="Max"),
        AIMessage("Thirteen."),
    ]
    shown = plain.context("And now?", thread_id="t", user_id="u").messages
    assert " ".join(message.type for message in shown) == "human ai tool tool ai human ai human"


def test_items_of_responses_become_a_thread(plain: Memory) -> None:
    picture = {"type": "input_image", "image_url": "https://example.org/a.png"}
    log = {
        "id": "t",
        "created_at": 1715594000,
        "messages": None,
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Is it warm?"}, picture]},
        ],
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": ""}, {"type": "output_text", "text": "I look."}],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "heat", "arguments": "{}"},
            {"type": "custom_tool_call", "id": "ct_1", "call_id": "c2", "name": "note", "input": "heat"},
            {"type": "function_call_output", "call_id": "c1", "output": "30"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "kept"}]},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "message", "id": "msg_2", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ],
    }
    report = plain.users.load(from_openai([log]), user_id="u")
    assert (report.messages, report.dropped) == (5, 3)
    heat = {"name": "heat", "args": {}, "id": "c1", "type": "tool_call"}
    note = {"name": "note", "args": {"input": "heat"}, "id": "c2", "type": "tool_call"}
    rows = plain.history.page("t").items
    assert items(*(row.message for row in rows)) == [
        HumanMessage(
            [{"type": "text", "text": "Is it warm?"}, {"type": "image_url", "image_url": {"url": picture["image_url"]}}]
        ),
        AIMessage([{"type": "text", "text": one} for one in ("", "I look.")], tool_calls=[heat, note]),
        ToolMessage("30", tool_call_id="c1"),
        ToolMessage("kept", tool_call_id="c2"),
        AIMessage("No."),
    ]
    assert [row.message.id for row in rows if row.message.type == "ai"] == ["msg_1", "msg_2"]
    assert int(rows[-1].stored_at.timestamp()) == 1715594000
    thread = thread_of(plain, "t")
    assert int(thread.updated_at.timestamp()) == 1715594000


def test_a_second_import_adds_nothing_and_nothing_of_the_same_is_lost(plain: Memory) -> None:
    hello = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
    logs = [hello, {"messages": hello}, {"messages": CHAT}]
    for expected in (11, 0):
        report = plain.users.load(from_openai(logs, user_id="u"))
        assert (report.messages, report.messages + report.skipped) == (expected, 11)
    assert len(plain.threads.list(user_id="u")) == 3
    assert plain.users.load(from_openai(logs, user_id="v")).threads == 3, "another user said the same"


def test_a_log_of_requests_is_one_thread(plain: Memory) -> None:
    first = [{"role": "user", "content": "My dog is Nougat"}]
    answer: Any = {"role": "assistant", "content": "A fine name!", "refusal": None, "annotations": []}
    second = [*first, {"role": "assistant", "content": "A fine name!"}, {"role": "user", "content": "Who?"}]
    requests: list[Any] = [
        {"id": "t", "title": "Dogs", "metadata": {"team": "a"}, "created": 1715594000, "messages": first},
        {"id": "t", "created": "2024-05-13T10:00:00", "messages": second},
    ]
    requests[0]["choices"] = [{"message": answer}]
    assert plain.users.load(from_openai(requests), user_id="u").messages == 3
    assert [message.text for message in plain.history.messages("t")] == ["My dog is Nougat", "A fine name!", "Who?"]
    thread = thread_of(plain, "t")
    assert (thread.title, thread.metadata) == ("Dogs", {"team": "a", "source": "openai"})
    assert f"{plain.history.page('t').items[-1].stored_at:%F %T}" == "2024-05-13 10:00:00"


CALLING = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
REASONS: dict[str, Any] = {
    "it has no messages": {},
    "message 0.*'content'": [{"role": "user"}],
    "message 1.*pilot": [{"role": "user", "content": "x"}, {"role": "pilot", "content": "x"}],
    "message 0.*'type'": [{"role": "user", "content": [{"text": "x"}]}],
    "message 0.*'function'": [CALLING],
    "message 0.*function_call": [{"role": "assistant", "content": None, "function_call": {"name": "f"}}],
    "message 0.*isoformat": [{"role": "user", "content": "x", "created_at": "today"}],
    "OverflowError|out of range": {"messages": [], "created_at": 1e300},
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_broken_conversation_is_refused_by_its_number(reason: str) -> None:
    with pytest.raises(OptionError, match=rf"conversation 1.*(?s:{reason}).*: pass conversations"):
        list(from_openai([CHAT, REASONS[reason]]))
