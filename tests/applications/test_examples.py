"""Every example runs as it is, without a key, and shows what it promises."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

# what the output must hold, in this order
PROMISES = {
    "agent": [
        *("user: My dog is called Nougat.", 'known about maya: {"dog": "Nougat"}', "friday: Redis starts"),
        *("assistant: Your dog is called Nougat.", "assistant: You are allergic to shellfish."),
    ],
    "graph": [
        *("friday, maya", "assistant: Your dog is called Nougat.", "assistant: You asked how your dog is called."),
        *("other, jonas", "assistant: I do not know.", "stored on friday: 4 messages"),
    ],
    "functional": ["friday", "assistant: Your dog is called Nougat.", "stored: 2 threads, 4 messages"],
    "chain": ["stored: 2 messages", "a new process", "assistant: Your dog is called Nougat.", "stored: 4 messages"],
    "rag": ["maya asks", "\n  Nougat.", "jonas asks", "\n  Kestrel.", "similarity 0."],
    "bound_tools": [
        *("tool update_working_memory: Working memory is updated", "assistant: You are Maya."),
        *("tool search_memory: <conversation", "assistant: You are allergic to shellfish."),
    ],
    "multi_agent": [
        *("the router chose travel", "the router chose billing", "You were charged twice for your trip to Lisbon"),
        "stored: 4 messages, by maya, travel, maya, billing",
    ],
    "from_mastra": [
        *("lena: thread huts, 4 messages", "lena: working memory", "['human', 'ai', 'tool', 'ai']"),
        *("- **First Name**: Lena", "14 May 2025"),
    ],
}


@pytest.mark.parametrize("name", PROMISES)
def test_an_example_shows_what_it_promises(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for key in ("OPENAI_API_KEY", "REDIS_URL"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", [f"{name}.py"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    shown = capsys.readouterr()
    assert shown.err == ""
    if name != "from_mastra":  # which needs no model
        assert shown.out.startswith("model: offline rules (set OPENAI_API_KEY for a real one)\n")
    rest = shown.out
    for promise in PROMISES[name]:
        assert promise in rest, shown.out
        rest = rest.partition(promise)[2]


def test_every_example_is_tested_and_explained() -> None:
    files = {path.name for path in EXAMPLES.glob("*.py")} - {"offline.py"}
    assert files == {f"{name}.py" for name in PROMISES} | {"quickstart.py"}
    listed = re.findall(r"^\| `(.+?)` \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(files)
