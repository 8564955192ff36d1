"""Every operation over a connection that breaks at any byte: the right answer or a typed error, whole or not at all."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest
import redis

from langchain_workingmem import RecallOptions, RedisConnectionError
from langchain_workingmem._engine import plan
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.embeddings import WordEmbeddings
from tests.helpers.examples import sample
from tests.helpers.fault_bench import BY_FACES, SEVERAL, TOOLS, FaultBench, Outcome
from tests.helpers.operations import ALONE
from tests.helpers.proxy import Exchange, Fault, Kind, Proxy, Stream
from tests.helpers.types import Make

TIMEOUT = timedelta(milliseconds=500)  # where somebody is silent
EVERY_BYTE = 60  # of exchanges up to so many bytes; of longer ones the boundaries, and a sample of the rest
SAMPLE = 12


def places(passed: bytes) -> list[int]:
    """Choose where to break: of every byte of a short exchange, else around each line, and by default two of these."""
    size = len(passed)
    if size <= EVERY_BYTE:
        return sample(range(size + 1), 2, offset=size)
    lines = [match.end() for match in re.finditer(rb"\r\n", passed)]
    around = [place + shift for place in lines[:: len(lines) // SAMPLE + 1] for shift in (-1, 0, 1)]
    return sample(sorted({0, 1, *around, *range(0, size, size // SAMPLE), size - 1, size} - {size + 1}), 2, offset=size)


@pytest.mark.parametrize(("face", "name"), BY_FACES, indirect=["face"])
def test_a_broken_connection_is_a_typed_error_or_the_right_answer(
    make_bench: Callable[..., FaultBench], name: str
) -> None:
    operation, bench = (ALONE | TOOLS)[name], make_bench()
    whole = bench.record(operation)
    assert whole.answer is not None
    for stream in get_args(Stream):
        for place in places(bytes(whole.exchange.of(stream))):
            kind: Kind = "reset" if place % 2 else "close"
            outcome = bench.try_out(operation, Fault(kind, stream, place))
            if outcome.error is None:
                assert outcome == whole
            else:
                assert isinstance(outcome.error, RedisConnectionError)
                assert operation.at_most_once, f"not repeated at byte {place} of the {stream}: {outcome.error}"
                # several commands that were cut in the last one may have taken effect; of a kept document, the first
                # reply says that values have to be written, too
                is_written = stream == "reply" and "b'kept'" not in whole.before
                states = {whole.after} if is_written else {whole.before, whole.after}
                assert outcome.after in states
                assert outcome == Outcome(None, whole.before, outcome.after, None, Exchange())


@pytest.mark.in_turn("face")
@pytest.mark.parametrize("name", SEVERAL)
def test_a_slow_or_silent_connection_is_waited_for_as_long_as_the_timeout_says(
    make_bench: Callable[..., FaultBench], name: str
) -> None:
    operation, bench, patient = ALONE[name], make_bench(timeout=TIMEOUT), make_bench()
    whole = patient.record(operation)
    for stream in get_args(Stream):
        middle = len(whole.exchange.of(stream)) // 2
        assert patient.try_out(operation, Fault("delay", stream, middle)) == whole
        outcome = bench.try_out(operation, Fault("silence", stream, middle))
        if operation.at_most_once:
            assert isinstance(outcome.error, RedisConnectionError)
            assert outcome.after == (whole.before if stream == "request" else whole.after)
        else:
            assert outcome == whole


@pytest.mark.both_faces
@pytest.mark.parametrize("place", ["redis", "unix"])
def test_a_server_that_stays_silent_is_asked_twice_at_most(make_memory: Make, tmp_path: Path, place: str) -> None:
    with socket.socket(socket.AF_UNIX if place == "unix" else socket.AF_INET) as mute:
        mute.bind(str(tmp_path / "s") if place == "unix" else ("127.0.0.1", 0))
        mute.listen()
        at = mute.getsockname()
        url = f"unix://{at}" if place == "unix" else f"redis://ann:hunter2@127.0.0.1:{at[1]}/0"
        memory = make_memory(url, timeout=timedelta(milliseconds=50))
        for call in (lambda: memory.threads.get("t"), lambda: memory.threads.delete("t")):
            with pytest.raises(RedisConnectionError) as caught:
                call()
            assert (caught.value.timed_out, caught.value.repeats) == (True, 1)
            assert "hunter2" not in str(caught.value)
        mute.setblocking(False)
        connections = 0
        with suppress(BlockingIOError):
            while True:
                mute.accept()[0].close()
                connections += 1
        assert connections == 4  # two calls


@pytest.mark.both_faces
def test_setting_up_over_a_broken_connection_works(
    proxy: Proxy, private: EmbeddedRedis, make_memory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake of the client, and the making of the indexes."""
    monkeypatch.setattr(plan, "PAUSES", (0.001, 0.001, 0.001))

    def set_up(fault: Fault | None) -> Exchange:
        memory = make_memory(proxy.url, key_prefix="s", embeddings=WordEmbeddings(), recall=RecallOptions())
        proxy.arm(fault)
        memory.setup()
        passed = proxy.arm(None)
        assert memory.threads.list().total == 0
        assert not memory.recall.search("x", user_id="u").hits
        memory.close()
        return passed

    with redis.Redis.from_url(private.url) as raw:

        def start_again() -> None:
            raw.delete("s:vectors:settings")
            for index in ("s:threads", "s:vectors"):
                raw.execute_command("FT.DROPINDEX", index)

        whole = set_up(None)
        start_again()
        for stream in get_args(Stream):
            for place in places(bytes(whole.of(stream))):
                set_up(Fault("reset" if place % 2 else "close", stream, place))
                start_again()
