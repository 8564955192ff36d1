"""Run tests on other engines, one after the other: python -m tests.engines ENGINE ... -- ARGUMENTS OF PYTEST.

An engine is a redis-server, a directory with bin/redis-server, or a .tar.xz of one, unpacked into .engines/ once. Its
Search module is found beside it. Exit code 1 if tests failed, 2 if an engine cannot be used: then no test runs.
"""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from langchain_workingmem.embedded import BINARY_VARIABLE, find_engine
from langchain_workingmem.errors import RedisCapabilityError

ROOT = Path(__file__).parents[1]


class UnusableError(Exception):
    """An engine cannot be used."""


def server_of(engine: Path, unpacked: Path = ROOT / ".engines") -> Path:
    """Return the redis-server of an engine; `UnusableError` says why there is none."""
    if not engine.exists():
        raise UnusableError(f"{engine} does not exist")
    if engine.name.endswith(".tar.xz"):
        engine = _unpack(engine, unpacked / engine.name.removesuffix(".tar.xz"))
    if engine.is_file():
        return engine.absolute()
    found = sorted(engine.glob("**/bin/redis-server"))
    if len(found) != 1:
        raise UnusableError(f"{engine} is no engine: {len(found)} files bin/redis-server are in it, 1 is needed")
    return found[0].absolute()


def _unpack(archive: Path, target: Path) -> Path:
    """Unpack an archive, unless it was unpacked since it last changed."""
    if not target.is_dir() or target.stat().st_mtime < archive.stat().st_mtime:
        target.parent.mkdir(exist_ok=True)
        part = tempfile.mkdtemp(dir=target.parent)  # so that an interrupted run leaves nothing that looks complete
        try:
            with tarfile.open(archive, "r:xz") as files:
                files.extractall(part, filter="data")
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            shutil.rmtree(part)
            raise UnusableError(f"{archive} cannot be unpacked: {error}") from error
        shutil.rmtree(target, ignore_errors=True)
        Path(part).rename(target)
    return target


def main(*words: str) -> int:
    """Run pytest on each engine, after all were looked at."""
    engines, arguments = words[: words.index("--")], words[words.index("--") + 1 :]
    environments, failed = {}, []
    try:
        if not engines:
            raise UnusableError('no engine was given: make test-engines ENGINES="path ..."')
        for engine in engines:
            environments[engine] = {**os.environ, BINARY_VARIABLE: str(server_of(Path(engine)))}
            find_engine(environments[engine])
    except (UnusableError, RedisCapabilityError) as error:
        said = str(error).removesuffix(f": {error.remedy}") if isinstance(error, RedisCapabilityError) else str(error)
        print(" ".join(said.split()), file=sys.stderr)
        return 2
    for engine, environment in environments.items():
        print(f"on {engine}:", flush=True)
        if subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode:
            failed.append(engine)
    if failed:
        print("tests failed on", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
