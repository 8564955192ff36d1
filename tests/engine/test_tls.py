"""TLS, with a certificate authority of our own, and passwords that nobody gets to see.

The servers that the tests can start are built without TLS. So the end of the connection is OpenSSL's all the same, but in
front of the server, as with stunnel or a cloud's load balancer.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from langchain_core.messages import HumanMessage

from langchain_workingmem import Memory, RedisConnectionError
from langchain_workingmem.embedded import EmbeddedRedis
from tests.helpers.faces import runners_of

pytestmark = pytest.mark.both_faces

Make = Callable[..., Memory]
HELLO = HumanMessage("hello", id="1")


class Gate:
    """Ends TLS on a port of this machine, and passes what it hears to the socket of a server."""

    def __init__(self, server: EmbeddedRedis, authority: trustme.CA, host: str) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert(host).configure_cert(self._context)
        self._socket_path = str(server.path and server.path / "redis.sock")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._listen)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _listen(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                plain, _ = self._listener.accept()
                thread = threading.Thread(target=self._serve, args=(plain,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, plain: socket.socket) -> None:
        tls = self._context.wrap_socket
        with (
            contextlib.suppress(OSError),
            tls(plain, server_side=True) as outer,
            socket.socket(socket.AF_UNIX) as inner,
        ):
            inner.connect(self._socket_path)
            self._open += [outer, inner]
            back = threading.Thread(target=self._copy, args=(inner, outer))
            back.start()
            self._copy(outer, inner)
            back.join()
        plain.close()

    @staticmethod
    def _copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def bundle(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def gate(server: EmbeddedRedis, authority: trustme.CA) -> Iterator[Callable[[str], int]]:
    """Open a port that shows a certificate for a name."""
    gates: list[Gate] = []

    def make(host: str = "localhost") -> int:
        gates.append(Gate(server, authority, host))
        return gates[-1].port

    yield make
    for one in gates:
        one.close()


@pytest.fixture
def ann(raw: Any, prefix: str) -> Iterator[str]:
    """A user whose password is hunter2."""
    raw.execute_command("ACL", "SETUSER", prefix, "reset", "on", ">hunter2", "~*", "+@all")
    yield prefix
    raw.acl_deluser(prefix)


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_a_conversation_over_tls_with_a_password(
    make_memory: Make, gate: Callable[..., int], bundle: Path, ann: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    memory = make_memory(f"rediss://{ann}:hunter2@localhost:{gate()}?ssl_ca_certs={bundle}")
    memory.history.append([HELLO], thread_id="t", user_id="u")
    assert memory.history.messages("t") == [HELLO]
    assert memory.threads.list(user_id="u").total == 1
    found = memory.doctor()
    assert found.level == "ok"
    inside = getattr(memory, "_target", memory)
    assert "hunter2" not in f"{caplog.text} {found!r} {inside!r} {vars(inside)} {vars(runners_of(inside)[0])}"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("reason", ["an unknown authority", "another host", "no TLS at all", "a wrong password"])
def test_whoever_is_not_trusted_gets_nothing(
    reason: str,
    make_memory: Make,
    gate: Callable[..., int],
    bundle: Path,
    ann: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    port = gate("example.org" if reason == "another host" else "localhost")
    scheme = "redis" if reason == "no TLS at all" else "rediss"
    trust = f"?ssl_ca_certs={bundle}&" if reason != "an unknown authority" else "?"
    password = "hunter3" if reason == "a wrong password" else "hunter2"
    trust = "?" if scheme == "redis" else trust
    url = f"{scheme}://{ann}:{password}@localhost:{port}{trust}retry_on_timeout=0&socket_timeout=5"
    memory = make_memory(url)
    with pytest.raises(RedisConnectionError) as caught:
        memory.history.append([HELLO], thread_id="t", user_id="u")
    assert password not in f"{shown(caught.value)} {caplog.text} {memory!r}"
    assert [finding.level for finding in memory.doctor()] == ["error"]
    assert password not in repr(memory.doctor())
