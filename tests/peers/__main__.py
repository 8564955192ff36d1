"""Run the suites of peers on our parts: python -m tests.peers CHECKOUT [SUITE ...].

Exit code 1 if a test fails that is not expected to, 2 if there is nothing to run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.peers.suites import SUITES, Suite

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".peers"
HOW = f"""\
make peer-tests CHECKOUT=path needs a folder that holds checkouts of the peers, or a checkout of one of them:
{", ".join(sorted({suite.repository for suite in SUITES}))}. {HERE.relative_to(ROOT)}/README.md says how."""


def place_of(suite: Suite, checkout: Path) -> Path | None:
    """Return the folder of a suite in a checkout, or in a folder of checkouts."""
    for repository in (checkout / suite.repository, checkout):
        folder = repository / suite.folder
        if (folder / "tests").is_dir() and project(folder)["project"]["name"] == suite.distribution:
            return folder
    return None


def project(folder: Path) -> dict[str, Any]:
    """Read a pyproject.toml."""
    return tomllib.loads((folder / "pyproject.toml").read_text())


def pins(places: dict[Suite, Path]) -> list[str]:
    """Return the packages in the versions that the checkout holds, except where ours needs a newer one."""
    ours = [Requirement(each) for each in project(ROOT)["project"]["dependencies"]]
    pinned = []
    for suite, folder in places.items():
        version = project(folder)["project"]["version"]
        if all(need.specifier.contains(version) for need in ours if need.name == suite.distribution):
            pinned.append(f"{suite.distribution}=={version}")
        else:
            print(f"{suite.name} {version} is older than ours allows: its tests run on the newest version")
    return pinned


def environment(repository: str, places: dict[Suite, Path]) -> Path:
    """Make or update the environment of a repository, and return its Python."""
    uv = ENVIRONMENTS / "uv" / "bin" / "uv"
    if not uv.exists():
        subprocess.run([sys.executable, "-m", "venv", uv.parents[1]], check=True)
        subprocess.run([uv.with_name("python"), "-m", "pip", "install", "--quiet", "uv"], check=True)
    target = ENVIRONMENTS / repository
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, target], check=True)
    python = target / "bin" / "python"
    tested = [folder for folder in places.values() if "test" in project(folder)["dependency-groups"]]
    groups = [word for folder in tested for word in ("--group", f"{folder / 'pyproject.toml'}:test")]
    # --no-sources: from the package index, not built from the checkout
    install: list[str | Path] = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--no-sources",
        "--python",
        python,
        *groups,
        *pins(places),
    ]
    subprocess.run([*install, "--editable", f"{ROOT}[embedded,files]", "pytest-asyncio", "pytest-xdist"], check=True)
    return python


def run(suite: Suite, folder: Path, python: Path) -> bool:
    """Run a suite on a copy of its tests, so that its package is imported from the environment."""
    with tempfile.TemporaryDirectory(prefix="peers-") as copy:
        shutil.copy(folder / "pyproject.toml", copy)
        shutil.copytree(folder / "tests", Path(copy, "tests"))
        print(f"\n{suite.name} {project(folder)['project']['version']}:", flush=True)
        command: list[str | Path] = [
            python,
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "peer_plugin",
            "-p",
            suite.plugin,
            "--peer",
            suite.name,
            *suite.words,
        ]
        # a plug-in of theirs warns where this is not set, and some suites make errors of warnings
        command += ["-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function", "-rfE", "--tb=short"]
        # NO_DOCKER: langgraph's tests leave out what needs servers that they start
        variables = {**os.environ, "PYTHONPATH": str(HERE), "NO_DOCKER": "true"}
        return subprocess.run(command, cwd=copy, env=variables, check=False).returncode == 0


def main(*words: str) -> int:
    """Run the suites that are in a checkout."""
    checkout, names = Path(words[0]).resolve() if words and words[0] else None, words[1:]
    found = {suite: place_of(suite, checkout) for suite in SUITES} if checkout and checkout.is_dir() else {}
    places = {suite: place for suite, place in found.items() if place and (not names or suite.name in names)}
    if not places:
        print(f"{checkout} holds none of the suites.\n" if checkout else "", HOW, sep="", file=sys.stderr)
        return 2
    passed = []
    for repository in dict.fromkeys(suite.repository for suite in places):
        of_it = {suite: place for suite, place in places.items() if suite.repository == repository}
        python = environment(repository, of_it)
        passed += [run(suite, place, python) for suite, place in of_it.items()]
    if missing := [suite.name for suite, place in found.items() if place is None]:
        print("\nnot in the checkout:", ", ".join(missing))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
