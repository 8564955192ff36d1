"""What no import takes, and that nothing is written then."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from langchain_workingmem import Memory
from langchain_workingmem.errors import OptionError
from tests.users.samples import HEADER, MEMORY, THREAD, message

BROKEN: list[tuple[list[Any], str]] = [
    (["{}"], r"record 1: the record is of type str.*json\.loads"),
    ([{**HEADER, "version": 2}], "record 1: this is not a header of 'langchain-workingmem' in version 1"),
    ([{**HEADER, "user_id": None}], "record 1: user_id is missing"),
    ([HEADER, HEADER], "record 2: kind 'header' is unknown"),
    ([HEADER, {**THREAD, "title": 5}], "record 2: title=5"),
    ([HEADER, {**THREAD, "metadata": {"a": 10**5000}}], "record 2: metadata 'a' is not JSON"),
    ([HEADER, {**THREAD, "created_at": "1969-12-31T23:00:00Z"}], "record 2: .*from 1970 to 2249"),
    ([HEADER, message()], "record 2: .*thread_id is 't', behind thread None"),
    ([HEADER, THREAD, message(None)], "record 3: .*the message has no id"),
    ([HEADER, THREAD, message(message={"type": "human"})], "record 3: .*message is not a dict with type and data"),
    (
        [HEADER, THREAD, message(message={"type": "system", "data": {"content": "x", "id": "m"}})],
        "record 3: .*a system",
    ),
    ([HEADER, THREAD, message(superseded="no")], "record 3: superseded"),
    ([HEADER, THREAD, message(vectors={"settings": "0", "data": ["%%%"]})], "record 3: "),
    ([HEADER, {**MEMORY, "revision": 2**53 - 1}], f"record 2: revision.*{2**48}"),
    ([HEADER, {**MEMORY, "revisions": [MEMORY, MEMORY]}], "record 2: .*revision 1 follows 1"),
    ([HEADER, {**MEMORY, "document": "x" * 65_537}], r"record 2: .*document has 65,537 bytes, .*max_bytes"),
]


@pytest.mark.parametrize(("records", "complaint"), BROKEN)
def test_a_record_that_cannot_be_read_is_refused_by_its_number(
    memory: Memory, raw: redis.Redis, prefix: str, records: list[Any], complaint: str
) -> None:
    for begin in [0, 3] if records[:1] == [HEADER] else [0]:
        number = complaint
        for at in (2, 3):  # the records of the case move back
            if f"record {at}" in complaint:
                number = complaint.replace(f"record {at}", f"record {at + begin}")
        with pytest.raises(OptionError, match=number):
            memory.users.load([*records[:1], *[MEMORY] * begin, *records[1:]])
    assert not list(raw.scan_iter(f"{prefix}:*{{*")), "all is checked before anything is written"


@pytest.mark.parametrize("lines", [["[" * 100_000], ['{"a": ' + "9" * 5000 + "}"], [b"\xff"]])
@pytest.mark.parametrize("later", [False, True])
def test_a_line_that_is_no_json_is_refused_by_its_number(
    plain: Memory, raw: redis.Redis, prefix: str, lines: list[Any], later: bool
) -> None:
    given = map(json.loads, [json.dumps(HEADER), json.dumps(THREAD), *lines] if later else lines)
    with pytest.raises(OptionError, match=f"record {3 if later else 1}: .*; nothing was imported"):
        plain.users.load(given)
    assert not list(raw.scan_iter(f"{prefix}:*{{*"))


@pytest.mark.parametrize("records", ["text", {"kind": "header"}, None])
def test_what_is_no_list_of_records_is_refused(plain: Memory, records: Any) -> None:
    with pytest.raises(OptionError, match=r"json\.loads"):
        plain.users.load(records)
