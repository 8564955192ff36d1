"""Which conversations and questions a file holds, and what is said about a file that cannot be used."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage, message_to_dict

from langchain_workingmem.errors import OptionError
from langchain_workingmem.evaluation import DataSet, Question, read

DOG = {"id": "dog", "role": "user", "text": "My dog is called Nougat."}
ASKED = {"question": "What is the dog called?", "evidence": ["dog"]}
HEADER = {"kind": "header", "format": "langchain-workingmem", "version": 1, "resource_id": "maya"}


def lines(*records: Any) -> str:
    return "\n".join(record if isinstance(record, str) else json.dumps(record) for record in records)


def exported(thread: str, message: Any, **more: Any) -> dict[str, Any]:
    return {"kind": "message", "thread_id": thread, "message": message_to_dict(message), "stored_at": None, **more}


def read_text(*texts: str) -> list[DataSet]:
    return read((f"some/{number}.jsonl", io.StringIO(text)) for number, text in enumerate(texts, 1))


def questions(text: str) -> list[Question]:
    (data,) = read_text(text)
    return [question for resource in data.resources for question in resource.questions]


def said(data: DataSet) -> list[tuple[str, str, str, str | None, str | None]]:
    """Return resource, thread, text, name and time of each message."""
    return [
        (
            resource.id,
            record["thread_id"],
            record["message"]["data"]["content"],
            record["message"]["data"]["name"],
            record["stored_at"],
        )
        for resource in data.resources
        for record in resource.messages
    ]


# ---------------------------------------------------------------------- JSON lines


def test_two_lines_are_a_data_set() -> None:
    (data,) = read_text(lines(DOG, "", ASKED))
    assert data.name == "1.jsonl"
    assert said(data) == [("user", "user", "My dog is called Nougat.", None, None)]
    (question,) = data.resources[0].questions
    assert question.evidence == {("user", "dog")}
    assert (question.known, question.date) == (1, None)
    assert data.sizes() == (1, 1, 6)


def test_a_message_has_ids_a_name_and_a_time_if_it_gives_them() -> None:
    more = {"thread_id": "monday", "resource_id": "maya", "name": "Maya", "stored_at": "2026-05-01T12:00"}
    other = {"type": "ai", "content": "Hello!", "resource_id": "maya"}
    (data,) = read_text(lines({**DOG, **more}, other, {**ASKED, "resource_id": "maya", "category": "pets"}))
    assert said(data) == [
        ("maya", "monday", "My dog is called Nougat.", "Maya", "2026-05-01T12:00:00+00:00"),
        ("maya", "maya", "Hello!", None, None),
    ]
    assert [record["message"]["type"] for record in data.resources[0].messages] == ["human", "ai"]
    assert data.resources[0].questions[0].category == "pets"


def test_files_of_lines_belong_together_and_each_header_names_its_resource() -> None:
    maya = lines(
        HEADER,
        {"kind": "thread", "id": "m", "title": "Dogs"},
        exported("m", HumanMessage("A dog.", id="dog"), stored_at="2026-05-01T12:00:00+02:00"),
        {"kind": "working_memory", "thread_id": None, "document": "x"},
    )
    jonas = lines({**HEADER, "resource_id": "jonas"}, exported("j", HumanMessage("A boat.", id="boat")))
    (data,) = read_text(maya, jonas, lines(ASKED, {"question": "Who sails?", "evidence": "boat"}))
    assert data.name == "1.jsonl, 2.jsonl, 3.jsonl"
    assert [(one.id, len(one.questions)) for one in data.resources] == [("maya", 1), ("jonas", 1)]
    assert data.resources[0].threads["m"]["title"] == "Dogs"
    assert said(data)[0] == ("maya", "m", "A dog.", None, "2026-05-01T12:00:00+02:00")


def test_what_recall_never_finds_is_left_out_and_counted() -> None:
    old = exported("m", HumanMessage("old", id="old"), superseded=True)
    system = {"role": "system", "text": "Be brief.", "id": "s"}
    tool = exported("m", ToolMessage("12", id="tool", tool_call_id="c"))
    (data,) = read_text(lines(HEADER, old, tool, system, {**DOG, "resource_id": "maya"}, ASKED))
    assert [text for _, _, text, _, _ in said(data)] == ["12", "My dog is called Nougat."]
    assert data.left_out == {"messages (superseded)": 1, "messages (a system message, or generated)": 1}
    with pytest.raises(OptionError, match="line 4: evidence 'old' is superseded: recall never finds it"):
        read_text(lines(HEADER, old, DOG, {**ASKED, "evidence": ["old"]}))


def at(hour: int, id: str, thread: str = "user") -> dict[str, Any]:
    return {"role": "user", "text": id, "id": id, "thread_id": thread, "stored_at": f"2026-05-01T{hour:02}:00Z"}


def test_messages_with_times_are_in_the_order_of_time_and_a_date_hides_later_ones() -> None:
    text = lines(
        at(9, "b", "two"),
        at(11, "c", "two"),
        at(8, "a", "one"),
        {"question": "?", "evidence": ["b"], "date": "2026-05-01T10:00"},
        {"question": "?", "evidence": ["a"], "after": "a"},
        {"question": "?", "evidence": ["a"], "after": {"thread_id": "two", "id": "b"}, "date": "2026-06-01"},
        {"question": "?", "evidence": ["a"]},
    )
    (data,) = read_text(text)
    assert [record["thread_id"] for record in data.resources[0].messages] == ["one", "two", "two"]
    assert [question.known for question in data.resources[0].questions] == [2, 1, 2, 3]
    assert data.resources[0].questions[0].date == datetime(2026, 5, 1, 10, tzinfo=UTC)


def test_without_times_the_order_is_that_of_the_lines() -> None:
    first = {"id": "z", "role": "user", "text": "z"}
    (question,) = questions(lines(first, at(8, "a"), {"question": "?", "evidence": ["z"], "after": "z"}))
    assert question.known == 1


def test_evidence_that_is_in_several_threads_or_resources_is_named_with_them() -> None:
    both = lines({**DOG, "thread_id": "one"}, {**DOG, "thread_id": "two"})
    with pytest.raises(OptionError, match="message 'dog' is in threads 'one', 'two'"):
        questions(f"{both}\n{lines(ASKED)}")
    named = {**ASKED, "evidence": [{"thread_id": "two", "id": "dog"}]}
    assert questions(f"{both}\n{lines(named)}")[0].evidence == {("two", "dog")}
    owned = lines({**DOG, "resource_id": "a"}, {**DOG, "resource_id": "b"})
    with pytest.raises(OptionError, match="the evidence belongs to 'a', 'b'"):
        questions(f"{owned}\n{lines(ASKED)}")
    assert questions(f"{owned}\n{lines({**ASKED, 'resource_id': 'b'})}")[0].evidence == {("b", "dog")}


@pytest.mark.parametrize(
    ("broken", "seen", "remedy"),
    [
        ({**ASKED, "evidence": ["cat"]}, "no message has the id 'cat'", "`workingmem show` prints ids"),
        ({**ASKED, "resource_id": "jo"}, "no message has the id 'dog' for 'jo'", "`workingmem show` prints ids"),
        ({"question": "What?"}, "the question has no evidence", "name the ids of the messages"),
        ({**ASKED, "evidence": []}, "the question has no evidence", "name the ids of the messages"),
        ({**ASKED, "evidence": [7]}, "message id is of type int", "use another string"),
        ({**ASKED, "question": " "}, "question or category is no text", 'write {"question"'),
        ({**ASKED, "date": "last week"}, "'last week' is no time", "use ISO 8601"),
        ({**ASKED, "date": "1969-01-01"}, "'1969-01-01' is no time", "use ISO 8601"),
        ({**ASKED, "after": "cat"}, "no message has the id 'cat'", "`workingmem show` prints ids"),
        ({**ASKED, "categroy": "pets"}, "the field 'categroy' is unknown", "after, answer, category"),
        (DOG, "message 'dog' is twice in thread 'user'", "give each message its own id"),
        ({**DOG, "id": ""}, "id is empty", "use another string"),
        ({**DOG, "id": "x", "resource_id": "b", "thread_id": "user"}, "belongs to 'user' and to 'b'", "of its own"),
        ({"id": "x", "text": "hello"}, "the message has the role None", "use user or assistant"),
        ({"id": "x", "role": ["user"], "text": "12"}, "the message has the role ['user']", "use user or assistant"),
        ({**ASKED, "resource_id": ["jo"]}, "resource_id is of type list", "use another string"),
        ({"id": "x", "role": "tool", "text": "12"}, "the message has the role 'tool'", "`workingmem export`"),
        ({"id": "x", "role": "user"}, "text or name of the message is no string", 'write {"role": "user"'),
        ({**DOG, "id": "x", "stored_at": "noon"}, "'noon' is no time", "use ISO 8601"),
        ({"kind": "message", "message": {"type": "human"}}, "the message cannot be read", "use a line of `export`"),
        (exported("m", HumanMessage("no id")), "message id is missing", "use another string"),
        ({"kind": "memo"}, "kind 'memo' is unknown", "use message or question"),
        ({"kind": "thread"}, "id is missing", "use another string"),
        ('{"id": ', "it is not JSON", "write one JSON object a line"),
        ("[]", "it is no JSON object", "write one JSON object a line"),
    ],
    ids=str,
)
def test_an_error_names_the_file_the_line_and_what_helps(broken: Any, seen: str, remedy: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_text(lines(ASKED, DOG, broken))
    assert str(caught.value).startswith("some/1.jsonl, line 3: ")
    assert seen in str(caught.value)
    assert remedy in str(caught.value.remedy)
    assert "\n" not in str(caught.value)


def test_a_question_comes_after_its_evidence() -> None:
    late = {"question": "?", "evidence": ["b"], "date": "2026-05-01T08:30"}
    with pytest.raises(OptionError, match="line 3: evidence 'b' is said after the question: correct after or date"):
        questions(lines(at(8, "a"), at(9, "b"), late))


@pytest.mark.parametrize(
    ("text", "seen"), [("", "1.jsonl has no messages"), (lines(ASKED), "no messages"), (lines(DOG), "no questions")]
)
def test_a_file_has_messages_and_questions(text: str, seen: str) -> None:
    with pytest.raises(OptionError, match=seen):
        read_text(text)


# ---------------------------------------------------------------------- whole files


def locomo(**more: Any) -> list[dict[str, Any]]:
    talk = {
        "speaker_a": "Maya",
        "speaker_b": "Jon",
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Maya", "dia_id": "D1:1", "text": "I painted."},
            {"speaker": "Jon", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a boat at sea"},
        ],
        "session_2_date_time": "10:04 am on 19 June, 2023",
        "session_3_date_time": "12:30 am on 1 July, 2023",
        "session_3": [{"speaker": "Jon", "dia_id": "D3:1", "text": "I sold the boat."}],
    }
    asked = [
        {"question": "Who painted?", "answer": "Maya", "evidence": ["D1:1"], "category": 4},
        {"question": "Which boat?", "answer": 7, "evidence": ["D1:02; D:3:1", "D9:9"], "category": 1},
        {"question": "Who sailed?", "evidence": ["D1:1"], "category": 5, "adversarial_answer": "Jon"},
        {"question": "Nothing?", "evidence": [], "category": 2},
    ]
    return [{"sample_id": "conv-1", "conversation": talk, "qa": asked, "event_summary": {}, **more}]


def test_locomo_is_read_as_it_is() -> None:
    (data,) = read_text(json.dumps(locomo(), indent=1))
    assert said(data) == [
        ("conv-1", "conv-1/session_1", "I painted.", "Maya", "2023-05-08T13:56:00+00:00"),
        ("conv-1", "conv-1/session_1", "Look! [shared image: a boat at sea]", "Jon", "2023-05-08T13:57:00+00:00"),
        ("conv-1", "conv-1/session_3", "I sold the boat.", "Jon", "2023-07-01T00:30:00+00:00"),
    ]
    found = data.resources[0].questions
    assert [(one.category, sorted(id for _, id in one.evidence), one.known) for one in found] == [
        ("single-hop", ["D1:1"], 3),
        ("multi-hop", ["D1:2", "D3:1"], 3),
        ("adversarial", ["D1:1"], 3),
    ]
    assert {one.date for one in found} == {datetime(2023, 7, 1, 0, 30, tzinfo=UTC)}
    assert data.left_out == {
        "questions (no evidence in the file)": 1,
        "ids of evidence (the file does not have the message)": 1,
    }


def benchmark(*, causal: bool) -> dict[str, Any]:
    message = {"speaker": "Maya", "role": "user", "text": "hello"}
    threads = [
        {"id": "a", "messages": [{**message, "id": "a0", "timestamp": "2026-05-02"}]},
        {"id": "b", "messages": [{**message, "id": "b0", "speaker": "User"}, {**message, "id": "b1", "role": "bot"}]},
    ]
    asked = [
        {"id": "q1", "question": "?", "evidence_message_ids": ["b0"], "after_thread": 2},
        {"id": "q0", "question": "?", "evidence_message_ids": ["a0"], "after_thread": 1, "question_date": "2026-05-03"},
    ]
    talk = {"id": "c", "resource": "maya", "threads": threads}
    return {"causal": causal, "items": [{"conversation": talk, "questions": asked}]}


@pytest.mark.parametrize(("causal", "known"), [(True, [3, 1]), (False, [3, 3])])
def test_the_form_of_the_benchmarks_is_read(causal: bool, known: list[int]) -> None:
    (data,) = read_text(json.dumps(benchmark(causal=causal)))
    assert [(thread, name) for _, thread, _, name, _ in said(data)] == [("a", "Maya"), ("b", None), ("b", "Maya")]
    assert [record["message"]["type"] for record in data.resources[0].messages] == ["human", "human", "ai"]
    assert [question.known for question in data.resources[0].questions] == known
    assert data.resources[0].questions[1].date == datetime(2026, 5, 3, tzinfo=UTC)


def test_what_is_known_counts_all_items_of_a_resource() -> None:
    first = benchmark(causal=True)
    second = json.loads(re.sub(r'"([ab]\d?)"', r'"later \1"', json.dumps(first)))
    (data,) = read_text(json.dumps({"causal": True, "items": first["items"] + second["items"]}))
    assert [question.known for question in data.resources[0].questions] == [3, 1, 6, 4]


def test_each_whole_file_is_a_data_set_of_its_own() -> None:
    found = read_text(json.dumps(locomo()), lines(DOG, ASKED), json.dumps(benchmark(causal=True)))
    assert [(data.name, len(data.resources[0].messages)) for data in found] == [
        ("1.jsonl", 3),
        ("2.jsonl", 1),
        ("3.jsonl", 3),
    ]


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ('[{"sample_id": 1}]', "item 0: it has another form than expected"),
        ('{"items": 5}', "items is 5"),
        ('{"items": [{"questions": []}]}', "item 0: it has another form than expected"),
        ('{\n"items": [1,\n', "line 3: it is not JSON"),
        (json.dumps(benchmark(causal=True)).replace('"a0"]', '"a9"]'), "question 'q0': no message has the id 'a9'"),
    ],
)
def test_a_file_of_another_form_is_refused(text: str, seen: str) -> None:
    with pytest.raises(OptionError, match=seen):
        read_text(text)
