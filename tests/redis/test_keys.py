from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_workingmem import IdError, OptionError
from langchain_workingmem._redis.keys import Keys, check_id, decode, encode

ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: len(text.encode()) <= 512
)


@given(ids)
def test_every_allowed_id_round_trips_through_its_encoding(id: str) -> None:
    assert check_id(id, "id") == id
    assert decode(encode(id)) == id
    assert decode(encode(id).encode()) == id


@given(ids)
def test_an_encoded_id_holds_nothing_that_a_key_a_tag_or_a_query_reads(id: str) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.~%-]+", encode(id))


@given(ids, ids)
def test_no_two_ids_share_an_encoding(one: str, other: str) -> None:
    assert (encode(one) == encode(other)) is (one == other)


@given(ids)
def test_a_threads_keys_give_back_its_id(id: str) -> None:
    keys = Keys("p")
    for key in keys.of(id):
        assert keys.thread_of(key.encode()) == id


@given(ids, ids)
def test_threads_never_share_a_key_or_a_prefix_of_vectors(one: str, other: str) -> None:
    keys = Keys("p")
    if one != other:
        assert not set(keys.of(one)) & set(keys.of(other))
        assert not keys.of(one).vector.startswith(keys.of(other).vector)


@given(ids)
def test_all_keys_of_a_thread_lie_in_one_slot(id: str) -> None:
    # the hash tag is what stands between the first { and the first } behind it
    tags = {re.search(r"\{([^}]*)\}", key) for key in Keys("a:b").of(id)}
    assert {tag and tag[1] for tag in tags} == {encode(id)}
    assert encode(id)


@pytest.mark.parametrize(
    ("value", "seen", "remedy"),
    [
        ("", "thread_id is empty", "pass another string"),
        ("a\0b", "NUL", "pass another string"),
        ("é" * 257, "514 bytes in UTF-8, the limit is 512", "use a shorter id or a hash of it"),
        ("a\udfff", "lone surrogate", "pass valid Unicode"),
        (None, "thread_id is missing", "pass thread_id=..."),
        (b"a", "thread_id is of type bytes", "pass a non-empty string"),
    ],
)
def test_a_bad_id_is_refused_with_what_was_seen_and_the_remedy(value: object, seen: str, remedy: str) -> None:
    with pytest.raises(IdError) as caught:
        check_id(value, "thread_id")
    assert seen in str(caught.value)
    assert remedy in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("prefix", ["", "a{b", "a b", "a\n", "é", None])
def test_a_prefix_that_could_break_out_of_a_key_is_refused(prefix: Any) -> None:
    with pytest.raises(OptionError, match=r"use letters, digits and `_ \. : -` only"):
        Keys(prefix)


def whole(keys: Keys, id: str) -> list[str]:
    """Return every key under a prefix that may belong to an id."""
    named = [value for name, value in vars(keys).items() if isinstance(value, str) and not name.endswith("prefix")]
    return [*named, *keys.of(id), *keys.of_user(id), *keys.of_item("0" * 32)]


prefixes = st.from_regex(r"[A-Za-z0-9_.:-]{1,8}", fullmatch=True)
kinds = st.sampled_from(sorted({key.removeprefix("p:").split(":{")[0] for key in whole(Keys("p"), "x")}))
# one prefix and another that goes on with words of keys, such as "app" and "app:memory"
related = st.tuples(prefixes, st.lists(kinds | kinds.map(lambda kind: kind.split(":")[0]), min_size=1, max_size=3)).map(
    lambda one: (one[0], ":".join([one[0], *one[1]]))
)


@given(st.tuples(prefixes, prefixes) | related, ids)
def test_no_key_of_one_prefix_is_one_of_another_or_falls_into_its_indexes(pair: tuple[str, str], id: str) -> None:
    one, other = map(Keys, pair)
    if one.prefix != other.prefix:
        assert not {*whole(one, id)} & {*whole(other, id)}
        for mine, theirs in ((one, other), (other, one)):
            caught = [value for name, value in vars(theirs).items() if name.endswith("_prefix")]
            assert not [key for key in whole(mine, id) if key.startswith(tuple(caught))]
