"""Run tests on other engines, one after the other: python -m tests.engines ENGINE ... -- ARGUMENTS OF PYTEST.

An engine is a redis-server, a directory with bin/redis-server, or a .tar.xz of one, which is unpacked into .engines/ once.
Its Search module is found beside it. Exit code 1 if tests failed on one of the engines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from langchain_workingmem._engine.server import BINARY_VARIABLE, find_engine

ROOT = Path(__file__).parents[1]


def server_of(engine: Path, unpacked: Path = ROOT / ".engines") -> Path:
    """Return the redis-server of an engine."""
    if engine.name.endswith(".tar.xz"):
        engine = _unpack(engine, unpacked / engine.name.removesuffix(".tar.xz"))
    if engine.is_file():
        return engine.absolute()
    found = sorted(engine.glob("**/bin/redis-server"))
    if len(found) != 1:
        raise SystemExit(f"{engine} is no engine: {len(found)} files bin/redis-server are in it, 1 is needed")
    return found[0].absolute()


def _unpack(archive: Path, target: Path) -> Path:
    """Unpack an archive, unless it was unpacked since it last changed."""
    if not target.is_dir() or target.stat().st_mtime < archive.stat().st_mtime:
        target.parent.mkdir(exist_ok=True)
        part = tempfile.mkdtemp(dir=target.parent)  # so that an interrupted run leaves nothing that looks complete
        with tarfile.open(archive, "r:xz") as files:
            files.extractall(part, filter="data")
        shutil.rmtree(target, ignore_errors=True)
        Path(part).rename(target)
    return target


def main(*words: str) -> int:
    """Run pytest on each engine."""
    engines, arguments = words[: words.index("--")], words[words.index("--") + 1 :]
    failed = []
    for engine in engines:
        environment = {**os.environ, BINARY_VARIABLE: str(server_of(Path(engine)))}
        find_engine(environment)  # an error of ours if it does not run here, not one for each test
        print(f"on {engine}:", flush=True)
        if subprocess.run([sys.executable, "-m", "pytest", *arguments], env=environment, check=False).returncode:
            failed.append(engine)
    if failed:
        print("tests failed on", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
