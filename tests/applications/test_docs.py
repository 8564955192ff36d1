"""Every Python block of README and docs runs, from top to bottom of each page; the reference has every public name."""

from __future__ import annotations

import ast
import builtins
import json
import os
import re
import subprocess
import sys
import textwrap
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import redis

import langchain_workingmem
from langchain_workingmem import WorkingMemoryOptions
from langchain_workingmem._redis.indexes import LAYOUT
from langchain_workingmem.embedded import chosen_engine
from langchain_workingmem.users.archive import VERSION
from langchain_workingmem.working_memory.document import Mode
from tests.applications.conftest import BLOCK, run_page
from tests.helpers.embedded import BareServers
from tests.helpers.types import Make

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.filterwarnings("ignore:RunnableWithMessageHistory is deprecated")
@pytest.mark.filterwarnings("ignore:Importing Send from langgraph.constants")  # langmem does
@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")  # langgraph-supervisor uses it
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=name_of)
def test_every_block_runs(page: Path) -> None:
    run_page(page)


def test_every_link_leads_somewhere() -> None:
    links = [(page, page.parent / target) for page in PAGES for target in LINK.findall(page.read_text())]
    assert [one for one in links if not one[1].exists()] == []


def test_every_test_that_a_page_names_exists() -> None:
    for page in PAGES:
        for path, _, name in re.findall(r"`(tests/[\w/]+\.py)(::(\w+))?`", page.read_text()):
            assert f"def {name}" in (ROOT / path).read_text(), (page, path, name)


HIDDEN = re.compile(r"^<!--\n.*?^-->", re.MULTILINE | re.DOTALL)


def test_what_a_reader_pastes_is_whole_and_has_no_model_of_the_tests() -> None:
    for page in PAGES:
        code = "\n".join(BLOCK.findall(HIDDEN.sub("", page.read_text())))
        assert not re.findall(r"Fake\w+Model|\(BaseChatModel\)", code), page
        nodes = list(ast.walk(ast.parse(code)))
        used = {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        made = {one.id for one in nodes if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
        made |= {one.arg for one in nodes if isinstance(one, ast.arg)}
        made |= {one.asname or one.name for one in nodes if isinstance(one, ast.alias)}
        made |= {one.name for one in nodes if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
        made |= {str(one.name) for one in nodes if isinstance(one, ast.ExceptHandler)}
        assert used - made <= set(dir(builtins)), page


def test_every_page_is_in_the_navigation() -> None:
    # but the notebooks, which are no files of docs
    nav = re.findall(r"((?!notebooks/)(?<!\S)\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(nav) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


SETTINGS = re.compile(r"(?:^    .+\n)*^    (?:appendonly|search-on-oom) .+\n(?:^    .+\n)*", re.MULTILINE)


def test_redis_starts_with_the_settings_of_a_page(raw: Any, start: BareServers, tmp_path: Path) -> None:
    page = (DOCS / "production.md").read_text()
    always, since = (textwrap.dedent(block) for block in SETTINGS.findall(page))
    known = since if raw.config_get("search-on-oom") else ""
    config = tmp_path / "redis.conf"
    config.write_text(always + known)
    modules = [word for module in chosen_engine().modules for word in ("--loadmodule", str(module))]
    with redis.Redis(port=start(str(config), *modules)) as client:
        lines = [line for line in (always + known).splitlines() if not line.startswith("#")]
        for name in ("appendonly", "appendfsync", "maxmemory-policy", *(["search-on-oom"] if known else [])):
            assert f"{name} {client.config_get(name)[name]}" in lines
        assert client.config_get("maxmemory") == {"maxmemory": str(12 * 2**30)}


def test_the_versions_on_the_pages_are_those_of_the_code() -> None:
    pages = "".join((DOCS / name).read_text() for name in ("storage-layout.md", "upgrading.md"))
    layouts = re.findall(r"the version (\d+)|this layout, `(\d+)`|was created: (\d+)|layout\.md\)\) \| (\d+) \|", pages)
    assert ["".join(one) for one in layouts] == [LAYOUT] * 4
    assert re.findall(r"\[export\]\([^)]+\) \| (\d+) \|", pages) == [str(VERSION)]


# ---------------------------------------------------------------------- the site

PARTS = (
    "langchain_workingmem.Memory",
    "langchain_workingmem.threads.Threads",
    "langchain_workingmem.history.History",
    "langchain_workingmem.recall.Recall",
    "langchain_workingmem.working_memory.store.WorkingMemory",
    "langchain_workingmem.files.api.Files",
    "langchain_workingmem.observations.api.Observations",
)
OTHERS = (
    *("MemoryMiddleware", "RedisMemoryStore", "SemanticRecallRetriever", "RedisChatMessageHistory"),
    *(f"importers.from_{form}" for form in ("chatgpt", "langchain", "openai")),
    *(f"adapters.{name}" for name in ("anthropic.AsyncMemoryTool", "anthropic.MemoryTool", "deepagents.FilesBackend")),
    *("adapters.claude_middleware.ClaudeMemoryMiddleware", "embedded.EmbeddedRedis", "mcp.server", "mcp.application"),
)
PUBLIC = (*(f"langchain_workingmem.{name}" for name in (*langchain_workingmem.__all__, *OTHERS)), *PARTS)
FOR_FACES = {"gathering", "assembled"}  # of Memory: plans that nodes and middleware run, nothing to call


def build(folder: Path, *, whole: bool) -> Path:
    """Build the site; `--strict` fails for a link, an anchor or a name that leads nowhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "WHOLE_SITE": str(whole).lower()}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.nightly  # and .ci/run, beside the other engine
def test_the_site_has_every_public_name_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    """One test, because each of several would build the site, with a tenth of the time of all tests."""
    build(tmp_path, whole=False)
    inventory = (tmp_path / "objects.inv").read_bytes().split(b"\n", 4)[4]
    reference = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    assert {*PUBLIC} - reference == set()
    shown = "".join(page.read_text() for page in (tmp_path / "reference").glob("*.html"))
    for part in PARTS:
        home, _, name = part.rpartition(".")
        names = {method for method in dir(getattr(import_module(home), name)) if not method.startswith("_")}
        twins = {method for method in names if method[0] == "a" and method[1:] in names}
        assert names - twins - FOR_FACES
        assert {f"{part}.{method}" for method in names - twins - FOR_FACES} - reference == set()
        assert {twin for twin in twins if f"Async twin: <code>{twin}</code>" not in shown} == set()
    assert "onger texts are embedded in chunks" in shown  # fields of options are described
    pages = list(tmp_path.rglob("*.html"))
    notebooks = list((ROOT / "notebooks").glob("*.ipynb"))
    assert len(pages) == len(PAGES) + len(notebooks)  # one of them says 404
    for page in pages:
        assert not re.findall(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"?https?:[^>]+>", page.read_text()), page


def test_the_quickstart_runs_and_says_what_it_shows() -> None:
    command = [sys.executable, "-W", "error", "examples/quickstart.py"]
    env = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=env).stdout
    told = ("Nougat", "Kestrel", "shellfish", "Still there: 9 threads, 269 messages", "Skipped: set OPENAI_API_KEY")
    assert [expected for expected in told if expected not in output] == []
    maya = output.partition("maya asks: What is the name of my dog?")[2].partition("asks:")[0]
    assert "Kestrel" not in maya


FILES = re.compile(r"^\| `(\w+)` \| ([\d,]+|None) \|", re.MULTILINE)


ROW = re.compile(r"^\| (merge|append|replace) \| `(.+)` \| `(.+)` \| `(.+)` \|$", re.MULTILINE)


@pytest.mark.parametrize("row", ROW.findall((ROOT / "docs/working-memory.md").read_text()), ids=" ".join)
def test_every_merge_in_the_table_is_true(row: tuple[Mode, str, str, str], make_memory: Make) -> None:
    mode, *cells = row
    before, update, after = map(json.loads, cells)
    free: Any = {"template": ""} if isinstance(before, str) else {"schema": {"type": "object"}}
    memory = make_memory(working_memory=WorkingMemoryOptions(**free))
    memory.working_memory.update(before, user_id="u", mode="replace")
    state = memory.working_memory.update(update, user_id="u", mode=mode)
    assert state.value == after
