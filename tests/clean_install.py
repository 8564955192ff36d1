"""Install a wheel in clean environments and use it there: python -m tests.clean_install [--python 3.12 ...] WHEEL.

For each Python that is found here: the wheel alone, then with all extras, by the programs of tests/uses.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_workingmem.embedded import EmbeddedRedis

ROOT = Path(__file__).parents[1]
USES = ROOT / "tests" / "uses"


def supported() -> list[str]:
    """Read the versions of Python out of the classifiers."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [line.rpartition(" ")[2] for line in classifiers if line.startswith("Programming Language :: Python ::")]
    return [version for version in versions if "." in version]


def interpreter(version: str) -> str | None:
    """Find a Python that really runs: this one, one on PATH, one of uv, one of pyenv (whose shims may lie)."""
    return next((path for path in _candidates(version) if _output(path, "-V").startswith(f"Python {version}.")), None)


def _candidates(version: str) -> Iterator[str]:
    yield getattr(sys, "_base_executable", sys.executable)
    yield f"python{version}"
    yield _output("uv", "python", "find", "--no-python-downloads", version)
    if latest := _output("pyenv", "latest", version):
        yield str(Path(_output("pyenv", "prefix", latest), "bin", "python"))


def _output(*command: str) -> str:
    """Return what a command prints, nothing if it fails or is not there."""
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def check(python: str, wheel: Path, url: str, prefix: str) -> None:
    """Install and use the wheel in an environment of its own."""
    with TemporaryDirectory(prefix="workingmem-dist-") as folder:
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        binaries, uv = Path(folder, "bin"), Path(sys.executable).with_name("uv")

        def run(*command: str) -> None:
            environment = {**os.environ, "OPENAI_API_KEY": "none", "PYTHONPATH": "", "REDIS_URL": url}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")

        def use(name: str) -> None:
            # -P: the directory of the programs holds an openai.py
            run(str(binaries / "python"), "-P", "-W", "error", str(USES / f"{name}.py"), url, f"{prefix}-{name}")

        def install(what: str) -> None:
            # uv takes a fifth of pip's time; pip where uv finds no index, as it does not read pip's settings
            if (
                uv.exists()
                and not subprocess.run(
                    (str(uv), "pip", "install", "--quiet", "--python", folder, what), capture_output=True, check=False
                ).returncode
            ):
                return
            # what is used is compiled then: half of the packages are not
            run(sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-compile", what)

        install(str(wheel))
        use("core")
        install(f"{wheel}[all]")
        for extra in sorted({path.stem for path in USES.glob("*.py")} - {"core"}):
            use(extra)
        run(str(binaries / "workingmem"), "--help")
        run(str(binaries / "workingmem"), "doctor", "--key-prefix", f"{prefix}-core")


def main() -> None:
    """Check every Python that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", nargs="*", default=supported(), help="versions; all that are found by default")
    arguments = parser.parse_args()
    found = {version: path for version in arguments.python if (path := interpreter(version))}
    print("not found here, not checked:", ", ".join(set(arguments.python) - set(found)) or "none", flush=True)
    if not found:
        sys.exit("no Python to check with")
    with EmbeddedRedis() as server:
        for version, path in found.items():
            began = time.monotonic()
            check(path, arguments.wheel.resolve(), server.url, f"py{version}")
            print(f"Python {version}: installed and used in {time.monotonic() - began:.0f} s ({path})", flush=True)


if __name__ == "__main__":
    main()
