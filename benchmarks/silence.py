"""Does a turn know when to show nothing? Talk in eight languages; benchmarks/talk/README.md tells what it holds.

    python benchmarks/silence.py --embeddings local minilm --half test

For each kind of turn: how many show anything, and how many tokens of text they show. For turns whose answer was said: the
share of its messages that is shown. `--unknown` hides the name of the model, as of one that nobody has measured.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from io import StringIO
from itertools import chain
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from common import row
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from minilm import model_of

from langchain_workingmem import Memory, RecallOptions
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.evaluation import read
from langchain_workingmem.importers import header

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from langchain_workingmem.models import RecallResult

TALK = Path(__file__).parent / "talk"
LANGUAGES = ("en", "de", "fr", "es", "ru", "zh", "ja", "ko")
SILENT = ("small_talk", "thanks", "order", "not_said")
ROLES: dict[str, Any] = {"user": HumanMessage, "assistant": AIMessage}


class Unknown(Embeddings):
    """A model under a name that nobody knows."""

    def __init__(self, inner: Embeddings) -> None:
        self._inner, self.model = inner, "a model of a stranger"

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._inner.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        return self._inner.embed_query(text)


def ask(memory: Memory, talk: dict[str, Any], turn: dict[str, Any], *, whole: bool = False) -> RecallResult:
    """Ask in a new conversation; `whole`: a follow-up as the question that it means."""
    before = [] if whole else turn.get("before", ())
    messages: list[BaseMessage] = [ROLES[one["role"]](one["text"]) for one in before]
    messages.append(HumanMessage(turn["whole"] if whole else turn["text"]))
    thread_id = f"{turn['id']}, {'whole' if whole else 'as typed'}"
    return memory.context(messages, thread_id=thread_id, resource_id=talk["language"], read_only=True).recalled


def store(memory: Memory, talk: dict[str, Any]) -> None:
    """Store what was said, at the time when it was said: "today" is not the day on which this runs."""
    renamed = {"thread": "thread_id", "at": "stored_at"}
    lines = [{renamed.get(name, name): value for name, value in one.items()} for one in talk["messages"]]
    lines += [{"question": one["text"], "evidence": one["expects"]} for one in talk["turns"] if one["expects"]]
    file = StringIO("\n".join(json.dumps({**line, "resource_id": talk["language"]}) for line in lines))
    ((resource,),) = (one.resources for one in read([("talk", file)]))
    records = [
        [thread, *(one for one in resource.messages if one["thread_id"] == id)]
        for id, thread in resource.threads.items()
    ]
    memory.users.load([header(resource.id), *chain.from_iterable(records)])


def measured(memory: Memory, talk: dict[str, Any], half: str) -> Iterator[tuple[str, bool, int, float, float]]:
    """Return of each turn its kind, whether anything is shown, how many tokens, which share of the answer, and of the whole question."""
    store(memory, talk)
    for turn in talk["turns"]:
        if half not in ("all", turn["half"]):
            continue
        found = ask(memory, talk, turn)
        share = whole = 0.0
        if expected := set(turn["expects"]):
            share = len(expected & {one.id for one in found.messages}) / len(expected)
            whole = share
            if "whole" in turn:
                known = {one.id for one in ask(memory, talk, turn, whole=True).messages}
                whole = len(expected & known) / len(expected)
        yield turn["kind"], bool(found.hits), sum(count_tokens(str(one.text)) for one in found.messages), share, whole


def searched(model: Embeddings, languages: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    """Return the share of each answer among the best one, two and three hits, by language; and that of zh_notes.json."""
    sets = [json.loads((TALK / f"{name}.json").read_text(encoding="utf-8")) for name in (*languages, "zh_notes")]
    for talk in sets:
        stored, asked = talk.get("notes") or talk["messages"], talk.get("questions") or talk["turns"]
        with EmbeddedRedis() as server, Memory(server.url, embeddings=model, recall=RecallOptions()) as memory:
            for one in stored:
                message = ROLES[one.get("role", "user")](one["text"], id=one["id"])
                owner = one.get("memory", "talk")
                memory.history.append([message], thread_id=one.get("thread", owner), resource_id=owner)
            for one in asked:
                if one.get("kind", "said") == "said":
                    hits = memory.recall.search(one["text"], resource_id=one.get("memory", "talk"), top_k=3).hits
                    found, wanted = [hit.message.id for hit in hits], {*one["expects"]}
                    shares = [len(wanted & {*found[:most]}) / len(wanted) for most in (1, 2, 3)]
                    yield f"{talk['language']} {one.get('shares', 'said')}", shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--embeddings", nargs="+", default=["local"])
    parser.add_argument("--half", choices=("tune", "test", "all"), default="tune")
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES)
    parser.add_argument("--search", action="store_true", help="what a search finds of the answers that were said")
    args = parser.parse_args()
    for name in args.embeddings:
        model = model_of(name)
        if args.search:
            shares = defaultdict(list)
            for kind, found in searched(model, args.languages):
                shares[kind].append(found)
            print(row("answers", "number", "in the best hit", "in two", "in three"))
            print(row("---", *["--:"] * 4))
            for kind, each in shares.items():
                print(row(kind, len(each), *(f"{mean(column):.3f}" for column in zip(*each, strict=True))))
            continue
        rows = defaultdict(list)
        for language in args.languages:
            talk = json.loads((TALK / f"{language}.json").read_text(encoding="utf-8"))
            with (
                EmbeddedRedis() as server,
                Memory(
                    server.url, embeddings=Unknown(model) if args.unknown else model, recall=RecallOptions()
                ) as memory,
            ):
                for kind, *found in measured(memory, talk, args.half):
                    rows[kind].append(found)
                    rows[f"{language} {'silent' if kind in SILENT else 'answered'}"].append(found)
        print(f"\n## {name}{' under an unknown name' if args.unknown else ''}, {args.half}\n")
        print(row("turns", "number", "show anything", "tokens", "share of the answer", "of the whole question"))
        print(row("---", *["--:"] * 5))
        for kind, found in sorted(rows.items(), key=lambda one: (" " in one[0], one[0])):
            shown, tokens, share, whole = (mean(column) for column in zip(*found, strict=True))
            answers = ("", "") if kind in SILENT or kind.endswith("silent") else (f"{share:.3f}", f"{whole:.3f}")
            print(row(kind, len(found), f"{shown:.0%}", f"{tokens:.0f}", *answers))


if __name__ == "__main__":
    main()
