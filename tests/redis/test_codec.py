"""What is stored of times, of metadata and of messages, whose long media lie beside them, is read back as it was."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from langchain_workingmem._redis.codec import LONG_TEXT, body_of
from langchain_workingmem._redis.filters import canonical_json, label
from langchain_workingmem._redis.keys import Keys
from langchain_workingmem._text.values import from_micros, to_micros
from langchain_workingmem.history.read import with_media
from langchain_workingmem.models import StoredMessage
from tests.helpers.media import forms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.integers(0, 4_102_444_800_000_000))
def test_every_microsecond_of_this_century_round_trips(micros: int) -> None:
    assert to_micros(from_micros(micros)) == micros
    assert from_micros(str(micros).encode()) == EPOCH + timedelta(microseconds=micros)


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_a_time_means_the_same_in_every_zone(at: datetime, minutes: int) -> None:
    there = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert to_micros(there) == to_micros(there.astimezone(UTC))
    assert from_micros(to_micros(there)) == there


@given(st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)))
def test_a_time_without_a_zone_is_local_time(at: datetime) -> None:
    assert to_micros(at) == to_micros(at.astimezone())


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))
def test_a_time_becomes_exact_microseconds(at: datetime) -> None:
    assert to_micros(at) == (at - EPOCH) // timedelta(microseconds=1)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(_json)
def test_canonical_json_reads_back_as_the_value(value: Any) -> None:
    assert json.loads(canonical_json(value, "k")) == value


@given(st.dictionaries(st.text(), _json))
def test_canonical_json_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    assert canonical_json(value, "k") == canonical_json(dict(reversed(value.items())), "k")


@given(st.text(), st.text())
def test_labels_of_different_values_differ(one: str, other: str) -> None:
    assert (label("k", one) == label("k", other)) is (one == other)


FORMS = forms()
STATE: Any = SimpleNamespace(keys=Keys("wm"))


def round_trip(message: Any) -> tuple[bytes, int, BaseMessage]:
    """Return what is stored of a message beside its media, how many these are, and the message that is read."""
    body, media = body_of(message, "q")
    row = StoredMessage.of(b'{"at":1,"number":0,' + body, "t", 0)
    assert len(row.record.get("media", ())) == len(media)
    if media:
        plan = with_media(STATE, [row])
        next(plan)
        with suppress(StopIteration):
            plan.send([[one.encode("utf-8", "surrogatepass") for one in media]])
    return body, len(media), row.message


@pytest.mark.parametrize("form", FORMS)
def test_each_form_comes_back(form: str) -> None:
    assert round_trip(FORMS[form])[2] == FORMS[form]


@given(st.text(min_size=1), st.sampled_from(["base64", "data", "url", ',"media":["', "\0", "7"]))
def test_any_text_comes_back_as_it_was(text: str, key: str) -> None:
    long = (text * (LONG_TEXT // len(text) + 1))[:LONG_TEXT]
    for value, count in ((long, 1), (long[:-1], 0)):
        message = HumanMessage([{"type": "image", key: value, "mime_type": "image/png"}], id="1")
        body, found, back = round_trip(message)
        assert (found, back) == (count, message)
        assert (len(body) < LONG_TEXT) is bool(count)
        artifact = ToolMessage("x", id="1", tool_call_id="c", artifact={"a": [1, {key: value}, None]})
        assert round_trip(artifact)[1:] == (count, artifact)
