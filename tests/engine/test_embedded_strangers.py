"""The embedded server among other users of the machine: none gets in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.errors import OptionError

pytestmark = [pytest.mark.usefixtures("scratch"), pytest.mark.programs]
NOBODY = 65534


def test_a_directory_of_another_user_is_refused(data: Path) -> None:
    if os.geteuid() == 0:
        data.mkdir(mode=0o700)
        os.chown(data, NOBODY, NOBODY)
        others = data
    else:
        others = Path("/usr")
    with pytest.raises(OptionError, match=r"belongs to another user.*chown"):
        EmbeddedRedis(others).start()
    assert not (others / "users.lock").exists()


@pytest.mark.parametrize("mode", [0o770, 0o722, 0o1777])
def test_a_directory_that_others_may_write_to_is_refused(data: Path, mode: int) -> None:
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(OptionError, match="chmod go-w"):
        EmbeddedRedis(data).start()
    assert not list(data.iterdir())
    data.chmod(mode & ~0o022)
    with EmbeddedRedis(data):  # others may read
        assert (data / "redis.sock").stat().st_mode & 0o077 == 0
