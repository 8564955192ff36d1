"""What a keeper answers is read in whatever clothes it comes: what is wrong is left out and counted, the rest is taken."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from langchain_workingmem.keeping.keeper.answers import (
    operations_in,
    read_operations,
    with_paths,
)
from langchain_workingmem.observations import BadAnswer

ONE = {"op": "set", "path": "/city", "value": "Oslo", "messages": [3]}
TWO = {"op": "remove", "path": "/job", "messages": [1, 2]}
LINE = json.dumps(ONE)
BOTH = json.dumps([ONE, TWO])


@pytest.mark.parametrize(
    "text",
    [
        BOTH,
        json.dumps([ONE, TWO], indent=2),
        f"{LINE}\n{json.dumps(TWO)}",
        f"- {LINE}\n- {json.dumps(TWO)}",
        f"Here you are:\n```json\n{BOTH}\n```\nThat is all, by messages [1, 2] and [3].",
        f"```\n{LINE}\n```\nand\n```\n{json.dumps(TWO)}\n```",
        f'<think>maybe {{"op": "remove", "path": "/city", "messages": [1]}}</think>\n{BOTH}',
        f'[{{"op": "remove", "path": "/city", "messages": [1]}}] is wrong, I think</think>\n{BOTH}',
        json.dumps({"operations": [ONE, TWO]}),
        BOTH.replace("[3]", "3").replace("[1, 2]", '["1", "2"]'),
        BOTH.replace('"op": "set"', '"why": "they moved", "op": "set"'),
    ],
)
def test_operations_are_found_in_every_form(text: str) -> None:
    assert read_operations(AIMessage(text)) == ([ONE, TWO], 0)


@pytest.mark.parametrize("text", ["[]", " []\n", "```json\n[]\n```", "Nothing has changed: []", '{"operations": []}'])
def test_an_empty_list_changes_nothing(text: str) -> None:
    assert read_operations(AIMessage(text)).operations == []


@pytest.mark.parametrize(
    "wrong",
    [
        '{"op": "set", "path": "/city" "value": 1, "messages": [1]}',
        '{"op": "set", "path": "/city", "value": NaN, "messages": [1]}',
        '{"op": "set", "path": "/city", "messages": [1]}',
        '{"op": "set", "path": 5, "value": 1, "messages": [1]}',
        '{"op": "delete", "path": "/city", "messages": [1]}',
        '{"op": "set", "path": "/city", "value": 1}',
        '{"op": "set", "path": "/city", "value": 1, "messages": []}',
        '{"op": "set", "path": "/city", "value": 1, "messages": ["x"]}',
        '{"op": "set", "path": "/city", "value": 1, "messages": [true]}',
        '{"op": "set", "path": "/city", "value": 1, "messages": [1.5]}',
        '{"find": "a", "messages": [1]}',
        '{"city": "Oslo"}',
        f'{{"op": "set", "path": "/city", "value": {"9" * 5000}, "messages": [1]}}',
        f'{{"op": "set", "path": "/city", "value": {"[" * 5000}{"]" * 5000}, "messages": [1]}}',
        f'{{"op": "set", "path": "/city", "value": {"[" * 200}{"]" * 200}, "messages": [1]}}',
    ],
)
@pytest.mark.parametrize("form", ["[{0}, {1}]", "{0}\n{1}", "{1}\n{0}"])
def test_a_wrong_operation_is_left_out_and_the_others_are_taken(form: str, wrong: str) -> None:
    assert operations_in(form.replace("{0}", wrong).replace("{1}", LINE)) == ([ONE], 1)


@pytest.mark.parametrize(
    "answer",
    [
        AIMessage(""),
        AIMessage("I have set the city to Oslo."),
        AIMessage("See messages [1, 2]."),
        AIMessage('{"op": "set", "path": '),
        AIMessage(LINE, response_metadata={"finish_reason": "length"}),
        AIMessage(LINE, response_metadata={"stop_reason": "refusal"}),
    ],
)
def test_nothing_is_guessed_from_prose_or_from_half_an_answer(answer: AIMessage) -> None:
    with pytest.raises(BadAnswer):
        read_operations(answer)


def test_what_a_prompt_escapes_is_written_as_it_was_said() -> None:
    given = {"op": "set", "path": "/note", "value": {"AT&amp;T": ["a &lt; b", "x\u202ey"]}, "messages": [1]}
    (found,) = read_operations(AIMessage(json.dumps([given]))).operations
    assert found["value"] == {"AT&T": ["a < b", "xy"]}


@pytest.mark.parametrize(
    "text", ["[1," * 30_000, "[{" * 100_000, "[" * 300_000, '{"a":' * 100_000, "{\n" * 20_000, '{"op":"x\n' * 20_000]
)
def test_no_answer_takes_long(text: str) -> None:
    before = time.process_time()
    operations_in(text)
    assert time.process_time() - before < 0.5


def test_numbers_of_values_stand_for_their_paths_and_lines() -> None:
    given: list[dict[str, Any]] = [{"op": "remove", "path": "v2"}, {"op": "remove", "path": "v9"}, {"find": "v1"}]
    found = with_paths(given, {1: "- **City**: Rome", 2: "/city"})
    assert found == [{"op": "remove", "path": "/city"}, {"op": "remove", "path": "v9"}, {"find": "- **City**: Rome"}]
