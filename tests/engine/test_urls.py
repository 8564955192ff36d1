"""URLs: those that cannot be read are refused, and no error shows a piece of a password."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_workingmem import Memory, OptionError, RedisConnectionError
from tests.helpers.examples import examples

pytestmark = pytest.mark.usefixtures("impatient")

ODD = "/#?@:[]%&= ,\\<>\"'\u2100\u00e9\t{}"
PLACES = (
    "redis://ann:{}@127.0.0.1:1/0",
    "rediss://ann:{}@127.0.0.1:1",
    "redis://{}:secret@127.0.0.1:1",
    "unix://ann:{}@/nowhere/redis.sock",
)
IN_QUERIES = (
    "redis://127.0.0.1:1?username=ann&password={}",
    "unix:///nowhere/redis.sock?password={}",
)
PIECES = ("4711", "8215")  # digits: what is cut off behind a colon may pass for a port


def texts(error: BaseException | None) -> Iterator[str]:
    """Say all that somebody may see of an error, suppressed causes included."""
    while error is not None:
        yield f"{error} {error!r} {getattr(error, '__notes__', '')}"
        error = error.__cause__ or error.__context__


def said(url: str) -> str:
    """Make a memory and use it, sync and async; return all that is said about it."""
    shown: list[str] = []
    calls: list[Callable[[Memory], object]]
    calls = [lambda memory: memory.threads.get("t"), lambda memory: asyncio.run(memory.threads.aget("t"))]
    for run in calls:
        memory = None
        try:
            memory = Memory(url, connect_timeout=timedelta(milliseconds=200))
            run(memory)
        except (OptionError, RedisConnectionError) as error:  # any other is a failure of the test
            shown += texts(error)
        shown += [repr(memory), repr(getattr(memory, "_core", None)), repr(getattr(memory, "_runner", None))]
    return re.sub("0x[0-9a-f]+", "", " ".join(shown))  # addresses of objects


@pytest.mark.parametrize("place", PLACES + IN_QUERIES)
@examples(8)
@given(odd=st.text(ODD, min_size=1, max_size=3))
@example(odd="/")
@example(odd="#")
@example(odd="?")
@example(odd="@")
@example(odd="\u2100")
@example(odd="<")
def test_no_error_shows_a_password_however_it_is_written(place: str, odd: str) -> None:
    password = odd.join(PIECES)
    for written in (password, quote(password), quote(password, safe="")):
        shown = said(place.format(written))
        assert not any(piece in shown for piece in PIECES), (written, shown)


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "localhost:6379",
        "redis://ann:4711@host:1?nonsense=8215",
        "rediss://host?ssl_cert_reqs=8215x",
        "redis://host:65536",
        "redis://host/name",
        "redis://host#8215",
        "unix:///nowhere%00",
        "redis+sentinel://ann:4711@host/service",
    ],
)
def test_a_url_that_could_not_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(OptionError) as caught:
        Memory(url)
    assert not any(piece in text for piece in PIECES for text in texts(caught.value))


def test_an_empty_url_is_no_url_and_never_means_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
    with pytest.raises(OptionError, match=r"use one of redis://"):
        Memory("")
    assert "elsewhere" in repr(Memory()._core.runner.client)
