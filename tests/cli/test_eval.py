"""`eval`: recall measured on files."""

from __future__ import annotations

import gzip
import json
import re
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage
from typer.testing import CliRunner

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.cli import app
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run, ended, started
from tests.helpers.embedded import wait_until
from tests.helpers.models import Scripted

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "measure.md"


def call(*words: object, input: str | None = None, **environment: str) -> Any:
    return CliRunner().invoke(app, ["eval", *map(str, words)], input=input, env={"COLUMNS": "200", **environment})


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """The file that the page of documentation shows."""
    path = tmp_path / "house.jsonl"
    path.write_text(blocks("json")[0])
    return path


def table(output: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in output.splitlines() if line[:2] == "| "]


def shape(output: str) -> list[str]:
    """Leave figures and blanks out: figures change with weights and engines, what the page explains does not."""
    lines = (re.sub(r"[-+]?\d*\.\d+|\d+ x \S+|,", "#", line) for line in output.splitlines())
    squeezed = (re.sub(r"[# ]+", " ", line).strip() for line in lines)
    return [line for line in squeezed if line and not line.startswith("|-")]


# ---------------------------------------------------------------------- the page


def test_the_page_shows_what_the_command_prints(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house.parent)
    joined = PAGE.read_text().replace("\\\n", " ")
    commands = re.findall(r"^    workingmem (eval house.*)", joined, re.MULTILINE)
    outputs = blocks("text")
    assert len(commands) == len(outputs) == 2
    for command, shown in zip(commands, outputs, strict=True):
        done = CliRunner().invoke(app, command.split(), env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.stderr
        assert shape(shown) == shape(done.stdout)[:-1]
        assert shape(done.stdout)[-1].startswith("A column is a number of tokens that come back")


# ---------------------------------------------------------------------- what it measures


def test_options_stand_side_by_side(house: Path) -> None:
    done = call(house, "--with", "search=semantic", "--with", "search=hybrid,weights.length=0", "--budget", "20,40")
    assert done.exit_code == 0
    first, *rows = table(done.stdout)
    assert first == ["share of evidence", "20", "40", "ms"]
    assert [row[0] for row in rows] == [
        "search=semantic",
        "search=hybrid,weights.length=0",
        "gain",
        "top_k x range",
        "search=semantic",
        "search=hybrid,weights.length=0",
    ]
    assert all(float(row[-1]) > 0 for row in rows[:2])


def test_options_gain_nothing_over_themselves(house: Path) -> None:
    done = call(house, "--with", "defaults", "--with", "defaults", "--budget", "20,40")
    assert ["gain", "+.000 [+.000, +.000]", "+.000 [+.000, +.000]", ""] in table(done.stdout)


def test_json_has_all_figures_and_categories(house: Path) -> None:
    more = [
        {"question": "Who paints the bathroom?", "evidence": ["5"], "category": "adversarial"},
        {"question": "Where is the hose?", "evidence": ["12"], "category": "places"},
    ]
    house.write_text(house.read_text() + "".join(json.dumps(one) + "\n" for one in more))
    own, false = json.loads(call(house, "--format=json", "--budget", "20,100000").stdout)
    assert (own["data"], own["questions"], own["messages"], own["left_out"]) == ("house.jsonl", 7, 12, {})
    assert (false["data"], false["questions"]) == ("house.jsonl, adversarial", 1)
    (variant,) = own["variants"]
    assert variant["options"] == "defaults"
    assert [(one["category"], one["questions"]) for one in variant["categories"]] == [("", 6), ("places", 1)]
    some, everything = variant["budgets"]
    assert some["interval"][0] <= some["share"] <= some["interval"][1]
    assert (everything["share"], everything["gain"], everything["gain_interval"]) == (1.0, 0.0, [0.0, 0.0])
    assert some["message_range"] in ([0, 0], [1, 1], [2, 2])


def test_what_is_not_asked_is_said(house: Path) -> None:
    house.write_text('{"role": "system", "text": "Be brief."}\n' + house.read_text())
    done = call(house, "--limit", 3, "--budget", "1,40").stdout
    assert "house.jsonl: 3 questions about 12 messages of 1 resource" in done
    assert "left out: messages (a system message, or generated): 1" in done
    assert "left out: questions (--limit): 3" in done
    assert "An empty cell: even one hit has more tokens" in done


def test_categories_have_a_table(house: Path) -> None:
    other = json.dumps({"question": "Where is the hose?", "evidence": ["12"], "category": EVIL})
    house.write_text(f"{house.read_text()}{other}\n")
    done = call(house, "--budget", "40").stdout
    assert ["category", "questions", "options", "40"] in table(done)
    assert table(done)[-2][:3] == ["(none)", "6", "defaults"]
    assert "\x1b" not in done


def test_what_changed_has_a_table_of_its_newest_evidence(house: Path) -> None:
    talk = [
        {"id": "old", "role": "user", "text": "My favourite colour is blue", "stored_at": "2026-05-01T08:00Z"},
        {"id": "new", "role": "user", "text": "My favourite colour is now green", "stored_at": "2026-05-02T08:00Z"},
        {"question": "What is my favourite colour?", "evidence": ["old", "new"], "category": "knowledge-update"},
        {"question": "What is the colour?", "evidence": ["new"], "category": "knowledge-update"},
    ]
    assert json.loads(call(house, "--format=json").stdout)[0]["variants"][0]["updates"] is None
    house.write_text("".join(json.dumps(one) + "\n" for one in talk))
    (one,) = json.loads(call(house, "--format=json", "--with", "top_k=1").stdout)
    assert one["variants"][0]["updates"] == {"questions": 1, "missing": 0, "outranked": 0}
    done = table(call(house).stdout)
    assert done[-2:] == [
        ["newest evidence of updates", "questions", "missing", "outranked"],
        ["defaults", "1", "0", "0"],
    ]


# ---------------------------------------------------------------------- what it reads


def test_an_export_and_questions_in_a_second_file(
    run: Run, talked: Memory, server: EmbeddedRedis, prefix: str, tmp_path: Path
) -> None:
    talked.save_turn([HumanMessage("And the cat?"), AIMessage("Miso.")], thread_id="dog", resource_id="maya")
    observing = ObservationOptions(model=Scripted.says("[1] Maya's dog is called Nougat."), keep_tokens=0)
    with Memory(server.url, key_prefix=prefix, observations=observing) as observer:
        assert observer.observations.observe("dog").observations
    exported, asked = tmp_path / "maya.jsonl.gz", tmp_path / "questions.jsonl"
    assert '"kind": "observations"' in run("export", "maya").stdout
    exported.write_bytes(gzip.compress(run("export", "maya", "--vectors").stdout.encode()))
    asked.write_text('{"question": "What is the dog called?", "evidence": "dog-q"}\n')
    done = call(exported, asked)
    assert done.exit_code == 0, done.stderr
    assert "maya.jsonl.gz, questions.jsonl: 1 question about 6 messages of 1 resource" in done.stdout
    both = run("export", "maya").stdout + asked.read_text()
    assert "-: 1 question about 6 messages" in call("-", input=both).stdout


def test_several_data_sets_have_tables_of_their_own(house: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    message = {"id": "a0", "speaker": "Maya", "role": "user", "text": "My dog Nougat likes carrots."}
    talk = {"id": "c", "resource": "maya", "threads": [{"id": "a", "messages": [message]}]}
    asked = {"id": "q", "question": "What does the dog like?", "evidence_message_ids": ["a0"]}
    other.write_text(json.dumps({"items": [{"conversation": talk, "questions": [asked]}]}))
    done = call(house, other).stdout
    assert "house.jsonl: 6 questions" in done
    assert "other.json: 1 question about 1 message of 1 resource" in done
    assert done.count("A column is a number of tokens") == 1


@pytest.mark.parametrize(
    ("words", "code", "seen"),
    [
        (["missing.jsonl"], 1, "missing.jsonl cannot be used: No such file"),
        (["broken.jsonl"], 1, "broken.jsonl, line 2: no message has the id 'cat': use the id of a message"),
        (["broken.gz"], 1, "broken.gz is not a complete gzip file"),
        (["cut.gz"], 1, "cut.gz is not a complete gzip file"),
        (["latin.jsonl"], 1, "latin.jsonl is not UTF-8"),
        (["good.jsonl", "--with", "max_tokens=3"], 2, "--with 'max_tokens=3': 'max_tokens' is no option"),
        (["good.jsonl", "--with", "embeddings=nobody"], 1, "use 'local' or 'provider:model'"),
        (["good.jsonl", "--budget", "many"], 2, "--budget 'many' is no list of numbers"),
        (["good.jsonl", "--budget", "0"], 2, "--budget '0' is no list of numbers"),
        ([], 2, "Missing argument"),
    ],
)
def test_what_cannot_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, seen: str
) -> None:
    monkeypatch.chdir(tmp_path)
    message, asked = '{"id": "dog", "role": "user", "text": "A dog."}', '{"question": "What?", "evidence": ["%s"]}'
    good = f"{message}\n{asked % 'dog'}\n"
    Path("good.jsonl").write_text(good)
    Path("broken.jsonl").write_text(f"{message}\n{asked % 'cat'}\n")
    Path("broken.gz").write_text(good)
    Path("cut.gz").write_bytes(gzip.compress(good.encode())[:-12])
    Path("latin.jsonl").write_bytes(good.replace("A dog", "Ein Köter").encode("latin-1"))
    done = call(*words)
    assert done.exit_code == code
    assert seen in done.stderr
    if words:
        assert done.stderr.count("\n") == 1
    assert not done.stdout


# ---------------------------------------------------------------------- where it runs


def test_it_touches_no_other_memory_and_leaves_nothing(
    house: Path, tmp_path: Path, server: EmbeddedRedis, raw: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = raw.dbsize()
    done = call(house, REDIS_URL=server.url, XDG_DATA_HOME=str(tmp_path / "home"))
    assert done.exit_code == 0
    assert raw.dbsize() == before
    assert not (tmp_path / "home").exists()
    wait_until(lambda: not list(temporary.iterdir()))


def test_ctrl_c_ends_it_and_leaves_nothing(house: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "t"
    temporary.mkdir()
    many = json.dumps({"question": "Where is the key of the shed?", "evidence": ["7"]})
    house.write_text(house.read_text() + f"{many}\n" * 20_000)
    program = started("eval", str(house), TMPDIR=str(temporary))
    wait_until(lambda: bool(list(temporary.iterdir())))
    program.send_signal(signal.SIGINT)
    assert ended(program) == 130
    wait_until(lambda: not list(temporary.iterdir()))
