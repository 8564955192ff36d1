"""Logs of OpenAI's APIs become threads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem import Memory, OptionError
from langchain_workingmem.importers import from_openai
from tests.helpers.threads import thread_of

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
                "content": [{"type": "output_text", "text": "I look."}],
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
        AIMessage([{"type": "text", "text": "I look."}], tool_calls=[heat, note]),
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
    "iterable": {"messages": 5},
    "message 0.*'content'": [{"role": "user"}],
    "message 1.*pilot": [{"role": "user", "content": "x"}, {"role": "pilot", "content": "x"}],
    "message 0.*'type'": [{"role": "user", "content": [{"text": "x"}]}],
    "message 0": [{"role": "user", "content": 5}],
    "message 0.*'function'": [CALLING],
    "message 0.*'call_id'": [{"type": "function_call", "name": "f", "arguments": "{}"}],
    "message 0.*isoformat": [{"role": "user", "content": "x", "created_at": "today"}],
    "OverflowError|out of range": {"messages": [], "created_at": 1e300},
    "NoneType": None,
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_broken_conversation_is_refused_by_its_number(reason: str) -> None:
    with pytest.raises(OptionError, match=rf"conversation 1.*(?s:{reason}).*: pass conversations"):
        list(from_openai([CHAT, REASONS[reason]]))
