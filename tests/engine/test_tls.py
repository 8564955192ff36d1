"""TLS, by an authority of our own, in front of a server that is built without it; and passwords that nobody sees."""

from __future__ import annotations

import logging
import ssl
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trustme
from langchain_core.messages import HumanMessage

from langchain_workingmem import RedisConnectionError
from langchain_workingmem.embedded import EmbeddedRedis
from tests.engine.conftest import to_socket
from tests.helpers.faces import runners_of
from tests.helpers.proxy import Proxy
from tests.helpers.types import Make

pytestmark = pytest.mark.both_faces

HELLO = HumanMessage("hello", id="1")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def bundle(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return path


@pytest.fixture
def gate(server: EmbeddedRedis, authority: trustme.CA) -> Iterator[Callable[..., int]]:
    """Open a port that shows a certificate for a name, ends TLS, and passes what it hears to the server."""
    with ExitStack() as stack:

        def make(host: str = "localhost") -> int:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert(host).configure_cert(context)
            return stack.enter_context(Proxy(to_socket(server), tls=context)).port

        yield make


@pytest.fixture
def ann(raw: Any, prefix: str) -> Iterator[str]:
    """A user whose password is hunter2."""
    raw.execute_command("ACL", "SETUSER", prefix, "reset", "on", ">hunter2", "~*", "+@all")
    yield prefix
    raw.acl_deluser(prefix)


def test_a_conversation_over_tls_with_a_password(
    make_memory: Make, gate: Callable[..., int], bundle: Path, ann: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    memory = make_memory(f"rediss://{ann}:hunter2@localhost:{gate()}?ssl_ca_certs={bundle}")
    memory.history.append([HELLO], thread_id="t", user_id="u")
    assert memory.history.messages("t") == [HELLO]
    found = memory.doctor()
    assert found.level == "ok"
    inside = getattr(memory, "_target", memory)
    assert "hunter2" not in f"{caplog.text} {found!r} {inside!r} {vars(inside)} {vars(runners_of(inside)[0])}"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("reason", ["an unknown authority", "another host"])
def test_whoever_is_not_trusted_gets_nothing(
    reason: str, make_memory: Make, gate: Callable[..., int], bundle: Path, ann: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    port = gate("example.org" if reason == "another host" else "localhost")
    trust = f"ssl_ca_certs={bundle}&" if reason != "an unknown authority" else ""
    url = f"rediss://{ann}:hunter2@localhost:{port}?{trust}retry_on_timeout=0&socket_timeout=5"
    memory = make_memory(url)
    with pytest.raises(RedisConnectionError) as caught:
        memory.history.append([HELLO], thread_id="t", user_id="u")
    assert "hunter2" not in f"{''.join(traceback.format_exception(caught.value))} {caplog.text} {memory!r}"
    found = memory.doctor()
    assert [finding.level for finding in found] == ["error"]
    assert "hunter2" not in repr(found)
