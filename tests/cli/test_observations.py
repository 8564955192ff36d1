"""`observe`, and `observations`: list, sources, delete, clear."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_workingmem import Memory, ObservationOptions
from langchain_workingmem.embedded import EmbeddedRedis
from tests.cli.conftest import EVIL, Run, ended, read_all, started
from tests.helpers.models import ModelDownError, Scripted

MODEL = ["--model", "any:model", "--keep-tokens", "0"]
TRIP = ["--thread", "trip"]


def notes(messages: Sequence[BaseMessage] | str) -> str:
    """Write what an observer may answer: a note about each message of the user."""
    text = messages if isinstance(messages, str) else str(messages[-1].text)
    said = re.findall(r'<message n="(\d+)" role="user"[^>]*>(.*?)</message>', text, re.DOTALL)
    return "\n".join(f"! [{number}] The user says: {unescape(words)}" for number, words in said)


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scripted]:
    """Stand for any provider: its model plays a script; without one it takes notes."""

    def use(*script: Any) -> Scripted:
        model = Scripted.says(*(script or [notes] * 99))
        monkeypatch.setattr("langchain_workingmem.memory.chat_model_by_name", lambda _: model)
        return model

    return use


def talk(memory: Memory, thread: str, resource: str, turns: int = 6) -> None:
    """Let somebody say a few things; the last question of the thread has no answer yet."""
    for number in range(turns):
        said = [HumanMessage(f"{thread} {number}: a hut near Cortina", id=f"{thread}-{number}"), AIMessage("Noted.")]
        memory.save_turn(said[: 1 if number == turns - 1 else 2], thread_id=thread, resource_id=resource)


@pytest.fixture
def huts(outside: Memory) -> Memory:
    """Two threads of Maya's and one of Jonas's."""
    for thread, resource in (("trip", "maya"), ("hut", "maya"), ("boat", "jonas")):
        talk(outside, thread, resource)
    return outside


def found(result: Any) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def texts(run: Run, *owner: str) -> list[str]:
    return [one["text"] for one in found(run("observations", "list", *owner, "--format=json"))["observations"]]


def observed(*threads: str) -> list[str]:
    """Return the notes of threads on which all but the present turn is observed."""
    return [f"The user says: {thread} {number}: a hut near Cortina" for thread in threads for number in range(5)]


# ---------------------------------------------------------------------- observe


def test_a_thread_is_observed_and_its_log_is_shown(run: Run, huts: Memory, observer: Callable[..., Scripted]) -> None:
    observer()
    shown = run("observe", "trip", *MODEL)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "5 observations" in shown.stdout
    assert "The user says: trip 4: a hut near Cortina" in shown.stdout
    assert texts(run, *TRIP) == observed("trip")
    assert texts(run, "--thread", "hut") == []


def test_a_second_call_asks_no_model(run: Run, huts: Memory, observer: Callable[..., Scripted]) -> None:
    observer()
    first = found(run("observe", "trip", *MODEL, "--format=json"))
    model = observer("nothing that could be used")
    assert found(run("observe", "trip", *MODEL, "--format=json"))["observations"] == first["observations"]
    assert found(run("observe", "--all", *MODEL, "--message-tokens", "99999", "--format=json"))["observed"] == 0
    assert not model.seen


@pytest.mark.parametrize(
    ("words", "others"), [(["--resource", "maya"], 0), (["--all"], 5)], ids=["one resource", "all resources"]
)
def test_all_threads_are_observed(
    run: Run, huts: Memory, observer: Callable[..., Scripted], words: list[str], others: int
) -> None:
    observer()
    count = found(run("observe", *words, *MODEL, "--format=json"))
    assert count == {"threads": 3 if others else 2, "observed": 3 if others else 2, "failed": 0}
    assert texts(run, *TRIP) == observed("trip")
    assert texts(run, "--thread", "hut") == observed("hut")
    assert len(texts(run, "--thread", "boat")) == others
    assert run("observe", *words, *MODEL).stdout == f"observed: 0 of {count['threads']} threads\n"


@pytest.mark.parametrize("words", [["--resource", "maya"], ["--all"]], ids=["one resource", "all resources"])
def test_the_log_of_a_user_is_observed_thread_by_thread(
    run: Run, huts: Memory, observer: Callable[..., Scripted], words: list[str]
) -> None:
    model = observer()
    words = ["observe", *words, *MODEL, "--scope", "resource"]
    count = found(run(*words, "--format=json"))
    assert count == {"threads": 2 + ("--all" in words), "observed": 2 + ("--all" in words), "failed": 0}
    assert len(model.seen) == count["threads"]
    assert texts(run, "--resource", "maya") == observed("trip", "hut")
    assert run(*words).stdout == f"observed: 0 of {count['threads']} threads\n"


def test_the_memory_of_a_program_brings_its_options(
    run: Run, huts: Memory, server: EmbeddedRedis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Scripted.says(notes)

    options = ObservationOptions(model=model, keep_tokens=0, background=False)
    program = ModuleType("program_of_huts")
    more: Any = {"key_prefix": prefix, "timezone": "Asia/Tokyo", "observations": options}
    vars(program)["make"] = lambda: Memory(server.url, **more)
    monkeypatch.setitem(sys.modules, program.__name__, program)
    shown = run("observe", "trip", "--memory", "program_of_huts:make")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "Asia/Tokyo" in str(model.seen)


@pytest.mark.parametrize(
    "words", [[], ["--memory", "a:b", *MODEL], ["--memory", "a:b", "--keep-tokens", "6000"]], ids=str
)
def test_a_model_or_a_program_is_named(run: Run, huts: Memory, words: list[str]) -> None:
    refused = run("observe", "trip", *words)
    assert refused.exit_code == 2
    assert "pass --model with its options, or --memory, which brings its own" in refused.stderr


def test_short_threads_are_left_out(run: Run, huts: Memory, observer: Callable[..., Scripted]) -> None:
    observer()
    talk(huts, "long", "maya", turns=12)
    tokens = huts.observations.get(thread_id="long").pending_tokens
    words = ["observe", "--all", *MODEL, "--message-tokens", str(tokens), "--format=json"]
    assert found(run(*words)) == {"threads": 4, "observed": 1, "failed": 0}
    assert len(texts(run, "--thread", "long")) == 11


def test_a_resource_has_one_log_of_all_its_threads(run: Run, huts: Memory, observer: Callable[..., Scripted]) -> None:
    observer()
    words = ["observe", "--all", "--scope", "resource", "--model", "any:model", "--format=json"]
    assert found(run(*words, "--keep-tokens", "1000")) == {"threads": 3, "observed": 1, "failed": 0}
    assert texts(run, "--resource", "maya") == observed("trip"), "only the latest thread keeps its newest messages"
    assert found(run(*words, "--keep-tokens", "0"))["observed"] == 2
    assert texts(run, "--resource", "maya") == observed("trip", "hut")
    assert texts(run, "--resource", "jonas") == observed("boat")
    refused = run("observe", "trip", *MODEL)
    assert refused.exit_code == 1
    assert refused.stderr.endswith("have the scope 'resource': pass --scope resource\n")


def test_a_wrong_call_says_so(run: Run, huts: Memory) -> None:
    for words in ([], ["trip", "--all"], ["--all", "--resource", "maya"]):
        refused = run("observe", *words, *MODEL)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "one of them" in refused.stderr
    missing = run("observe", "nope", *MODEL[:1], "openai:any", OPENAI_API_KEY="a key")
    assert (missing.exit_code, missing.stderr.count("\n")) == (1, 1)
    assert "no thread 'nope': `workingmem threads`" in missing.stderr
    assert run("observe", "trip").exit_code == 2


# ---------------------------------------------------------------------- a model that fails


def test_a_model_that_fails_is_one_line_and_changes_nothing(
    run: Run, huts: Memory, observer: Callable[..., Scripted]
) -> None:
    observer(*[ModelDownError("over\nloaded")] * 3)
    failed = run("observe", "trip", *MODEL)
    assert failed.exit_code == 1
    assert "No observations" in failed.stdout
    assert failed.stderr.count("\n") == 1
    assert "no usable answer for thread 'trip' (the chat model failed (ModelDownError" in failed.stderr
    assert "check --model and its key, and run this again" in failed.stderr
    observer()
    assert run("observe", "trip", *MODEL).exit_code == 0, "a pause after failures is for the background only"
    assert texts(run, *TRIP) == observed("trip")


def test_the_other_threads_are_observed_nevertheless(run: Run, huts: Memory, observer: Callable[..., Scripted]) -> None:
    observer(*["I cannot help with that."] * 3, notes, notes)
    failed = run("observe", "--all", *MODEL, "--format=json")
    assert failed.exit_code == 1
    assert json.loads(failed.stdout) == {"threads": 3, "observed": 2, "failed": 1}
    assert "for thread 'trip' (" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_model_that_always_fails_is_not_asked_about_every_thread(
    run: Run, huts: Memory, observer: Callable[..., Scripted]
) -> None:
    talk(huts, "fourth", "maya")
    model = observer(*["no"] * 9)
    failed = run("observe", "--all", *MODEL)
    assert failed.exit_code == 1
    assert failed.stdout == "observed: 0 of 4 threads\n"
    assert "for thread 'trip' and 2 more (" in failed.stderr
    assert len(model.seen) == 9


def test_a_log_that_is_not_condensed_counts_as_a_failure(
    run: Run, huts: Memory, observer: Callable[..., Scripted]
) -> None:
    observer(lambda shown: notes(shown).replace("!", "-"), "no", "no", "no")  # high lines are never condensed
    failed = run("observe", "trip", *MODEL, "--observation-tokens", "1")
    assert failed.exit_code == 1
    assert "no usable answer" in failed.stderr
    assert texts(run, *TRIP) == observed("trip")


# ---------------------------------------------------------------------- as a process


@pytest.fixture
def provider() -> Iterator[dict[str, Any]]:
    """Speak as OpenAI's server does, take notes, and keep what was asked."""
    asked: list[str] = []

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body["messages"][-1]["content"])
            message = {"role": "assistant", "content": notes(asked[-1])}
            usage = {"prompt_tokens": 900, "completion_tokens": 90, "total_tokens": 990}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            answer = {"id": "1", "object": "chat.completion", "model": "any", "created": 1, "choices": [choice]}
            written = json.dumps({**answer, "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as opened:
        Thread(target=opened.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{opened.server_port}/v1"
        yield {"asked": asked, "environment": {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "a key"}}
        opened.shutdown()


def test_processes_at_once_observe_nothing_twice(
    run: Run, huts: Memory, server: EmbeddedRedis, prefix: str, provider: dict[str, Any]
) -> None:
    words = ["observe", "--all", "--model", "openai:any", "--keep-tokens", "0", "--batch-tokens", "20"]
    words += ["--url", server.url, "--key-prefix", prefix]
    running = [started(*words, **provider["environment"]) for _ in range(2)]
    said = [process.communicate(timeout=60) for process in running]
    assert [(process.returncode, errors) for process, (_, errors) in zip(running, said, strict=True)] == [(0, "")] * 2
    asked = [one for call in provider["asked"] for one in re.findall(r'role="user"[^>]*>(\w+ \d)', call)]
    assert sorted(asked) == sorted(f"{thread} {number}" for thread in ("trip", "hut", "boat") for number in range(5))
    for thread in ("trip", "hut", "boat"):
        assert texts(run, "--thread", thread) == observed(thread)
    assert found(run("observations", "list", *TRIP, "--format=json"))["usage"]["input_tokens"] % 900 == 0


def test_a_terminal_shows_how_far_it_is(
    huts: Memory, server: EmbeddedRedis, prefix: str, provider: dict[str, Any]
) -> None:
    words = ["observe", "--all", "--model", "openai:any", "--keep-tokens", "0", "--batch-tokens", "20"]
    words += ["--url", server.url, "--key-prefix", prefix]
    process = started(*words, terminal=True, fresh=True, **provider["environment"])
    seen = read_all(process)
    assert ended(process) == 0
    assert re.search(r"observe: +0%", seen)
    assert re.search(r"observe: +[89]\d%", seen), "the present turns stay as they are"
    assert "observed: 3 of 3 threads" in seen


# ---------------------------------------------------------------------- observations


@pytest.fixture
def logged(run: Run, huts: Memory, observer: Callable[..., Scripted]) -> Memory:
    """The trip is observed."""
    observer()
    run("observe", "trip", *MODEL)
    return huts


def test_a_log_is_listed_as_people_programs_and_models_read_it(run: Run, logged: Memory) -> None:
    shown = run("observations", "list", *TRIP)
    assert re.search(r"▸ .* high +The user says: trip 0: a hut near Cortina +1 +1 *\n", shown.stdout)
    row = found(run("observations", "list", *TRIP, "--format=json"))["observations"][0]
    assert (row["id"], row["priority"], row["sources"]) == ("1", "high", [["trip", "trip-0"]])
    raw = run("observations", "list", "--raw", *TRIP).stdout
    assert raw == logged.observations.get(thread_id="trip").as_text() + "\n"
    assert raw.count("\n") == 6
    far = run("observations", "list", "--raw", "--timezone", "Pacific/Kiritimati", *TRIP).stdout
    assert far == logged.observations.get(thread_id="trip").as_text("Pacific/Kiritimati") + "\n" != raw


def test_where_nothing_is_observed_the_other_scope_is_named(run: Run, logged: Memory) -> None:
    for words, other in ((["--thread", "hut"], "--resource"), (["--resource", "maya"], "--thread")):
        empty = run("observations", "list", *words)
        assert "No observations" in empty.stdout
        assert empty.stderr.endswith(f"pass {other}.\n")


def test_the_messages_behind_an_observation(run: Run, logged: Memory) -> None:
    shown = run("observations", "sources", "3", *TRIP)
    lines = [line for line in shown.stdout.splitlines() if "Noted." in line or "trip" in line]
    assert [line[0] for line in lines[1:]] == [" ", "▸", " "]
    assert "trip 2: a hut near Cortina" in lines[2]
    (hit,) = found(run("observations", "sources", "3", *TRIP, "--message-range", "0", "--format=json"))["hits"]
    assert hit["message"]["data"]["id"] == "trip-2"
    assert hit["before"] == hit["after"] == []


def test_deleting_asks_first(run: Run, logged: Memory) -> None:
    before = texts(run, *TRIP)
    for words, question in (
        (["delete", "2"], "Delete observation 2, 'The user says: trip 1: a hut near Cortina'?"),
        (["clear"], "Delete all 5 observations?"),
    ):
        refused = run("observations", *words, *TRIP)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert question in refused.stderr
        assert refused.stderr.endswith("pass --yes\n")
    assert texts(run, *TRIP) == before
    assert run("observations", "delete", "2", *TRIP, "--yes").exit_code == 0
    assert texts(run, *TRIP) == [before[0], *before[2:]]
    assert found(run("observations", "clear", *TRIP, "--yes", "--format=json"))["observations"] == []


def test_the_log_of_a_resource_is_corrected_as_well(run: Run, huts: Memory, observer: Callable[..., Scripted]) -> None:
    observer()
    run("observe", "--resource", "maya", *MODEL, "--scope", "resource")
    maya = ["--resource", "maya"]
    before, ids = (
        texts(run, *maya),
        [one["id"] for one in found(run("observations", "list", *maya, "--format=json"))["observations"]],
    )
    run("observations", "delete", ids[0], *maya, "--yes")
    assert texts(run, *maya) == before[1:]
    assert sorted(before) == sorted(observed("trip", "hut"))
    assert before[-1].partition(": ")[2] in run("observations", "sources", ids[-1], *maya).stdout


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["list"], 2, "pass --resource"),
        (["list", "--thread", "nope"], 1, "no thread 'nope'"),
        (["list", "--resource", "jonas", *TRIP], 1, "does not belong"),
        (["sources", "99", *TRIP], 1, "no observation '99': `workingmem observations list` lists the ids"),
        (["delete", "99", *TRIP], 1, "no observation '99'"),
        (["delete", "99", *TRIP, "--yes"], 1, "no observation '99'"),
    ],
)
def test_a_mistake_says_what_to_do(run: Run, logged: Memory, words: list[str], code: int, reason: str) -> None:
    failed = run("observations", *words)
    assert (failed.exit_code, failed.stdout, failed.stderr.count("\n")) == (code, "", 1)
    assert reason in failed.stderr
    assert texts(run, *TRIP) == observed("trip")


def test_what_people_and_models_wrote_is_text(run: Run, logged: Memory) -> None:
    logged.threads.update("trip", title=f"trip {EVIL}")
    for words in (["sources", "5"], ["sources", "5", "--format=json"]):
        shown = run("observations", *words, *TRIP)
        assert "[red]" in shown.stdout
        assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown.output)
