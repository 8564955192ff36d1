"""How much of what a question is about does recall bring back? docs/recall.md explains the method and shows figures.

    python benchmarks/recall_quality.py locomo.json.gz realmem.json.gz --embeddings minilm

Each file holds one data set in the common form, as JSON, gzipped if its name ends in .gz:

    {"causal": false, "items": [{
        "conversation": {"id": "c", "resource": "maya", "threads": [
            {"id": "c/1", "messages": [{"id": "c/1/0", "speaker": "Maya", "role": "user", "text": "..."}]}]},
        "questions": [{"id": "q", "category": "temporal", "question": "...", "evidence_message_ids": ["c/1/0"]}]}]}

An item is all that one resource said, and what is asked about it; whatever else the objects hold is ignored. In a causal
data set a question has "after_thread": how many threads exist when it is asked. Questions of the category
"adversarial", whose premise is false, have a table of their own.

    python benchmarks/recall_quality.py locomo.json.gz realmem.json.gz --turn

measures what a turn shows, with its budget, its floor and its rules about repetitions, beside a search without them, and
asks each user what others were asked, and nonsense: that should bring nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import math
import sqlite3
import statistics
import time
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
from common import row
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from tqdm import tqdm

from langchain_workingmem import HybridWeights, Memory, RecallOptions, RecallResult
from langchain_workingmem._engine.embedder import name_of
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.embeddings import embeddings_by_name
from langchain_workingmem.recall import operations as plans
from langchain_workingmem.recall.ranking import Floor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Search: TypeAlias = Literal["semantic", "hybrid"]
    Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
    Json: TypeAlias = dict[str, Any]

GRID = "1,2,3,5,8,10,15,20,30,50,80,120x0,1,2"
BUDGETS = (250, 500, 1000, 2000, 4000)
ANY, SHARE, ALL, TOKENS = range(4)  # what is noted of a recall
ROLES = {"user", "assistant", "human", "ai", "bot", "agent", "model", "system"}  # speakers that are no persons
SAMPLES = 1000  # of the bootstrap
UNRELATED = 40  # questions of other data sets that each user is asked
NONSENSE = ("asdf qwer", "qwertyuiop", "fjdksla gjkhf", "xyzzy plugh", "1234567890")


class Kept(Embeddings):
    """A model whose vectors are kept in a file, since the same texts are measured again and again."""

    def __init__(self, name: str, path: Path | None) -> None:
        self._name = name
        self._db = sqlite3.connect(path or ":memory:")
        self._db.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")
        if name == "minilm":
            from minilm import MiniLM

            self._inner: Embeddings = MiniLM()
        else:
            self._inner = embeddings_by_name(name)
        self.model = name_of(self._inner)  # which the floor goes by

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self._look_up("document", texts, self._inner.embed_documents)

    def embed_query(self, text: str) -> list[float]:
        return self._look_up("query", [text], lambda texts: [self._inner.embed_query(text) for text in texts])[0]

    def _look_up(
        self, kind: str, texts: list[str], embed: Callable[[list[str]], list[list[float]]]
    ) -> list[list[float]]:
        keys = [hashlib.sha256(f"{self._name}\0{kind}\0{text}".encode()).digest() for text in texts]
        select = "SELECT vector FROM vectors WHERE text = ?"
        rows = [self._db.execute(select, [key]).fetchone() for key in keys]
        missing = [place for place, row in enumerate(rows) if row is None]
        for place, vector in zip(missing, embed([texts[place] for place in missing]) if missing else (), strict=True):
            rows[place] = (np.asarray(vector, np.float32).tobytes(),)
        self._db.executemany(
            "INSERT OR IGNORE INTO vectors VALUES (?, ?)", [(keys[place], *rows[place]) for place in missing]
        )
        self._db.commit()
        return cast("list[list[float]]", [np.frombuffer(vector, np.float32) for (vector,) in rows])


@dataclass
class Figures:
    """What one search found: an array of questions x top_k x message_range x (ANY, SHARE, ALL, TOKENS)."""

    rows: list[Array] = field(default_factory=list)
    silent: list[bool] = field(default_factory=list)  # for each unrelated question: nothing came back
    seconds: list[float] = field(default_factory=list)

    def only(self, wanted: Sequence[bool]) -> Array:
        return np.array([row for row, want in zip(self.rows, wanted, strict=True) if want])


class Bench:
    """One data set on one server; each search is a memory of its own over the same stored messages."""

    def __init__(
        self, url: str, model: Embeddings, args: argparse.Namespace, prefix: str, unrelated: Sequence[str] = ()
    ) -> None:
        self.args, self.unrelated = args, unrelated
        self.memories = {
            search: Memory(
                url, embeddings=model, recall=RecallOptions(search=search, weights=args.weights), key_prefix=prefix
            )
            for search in args.search
        }
        self.figures = {
            name: Figures() for search in args.search for name in (search, f"{search}, turn")[: 1 + args.turn]
        }
        self.categories: list[str] = []

    def run(self, data: Json) -> None:
        items = data["items"]
        each = max(1, self.args.limit // len(items)) if self.args.limit else None
        work = [(item, picked(item["questions"], each)) for item in items]
        with tqdm(total=sum(len(questions) for _, questions in work), desc="questions", leave=False) as bar:
            for item, questions in work:
                threads, done = item["conversation"]["threads"], 0
                for question in questions:
                    known = question.get("after_thread", len(threads)) if data.get("causal") else len(threads)
                    self.store(item["conversation"]["resource"], threads[done:known])
                    done = max(done, known)
                    self.ask(item["conversation"], question)
                    bar.update()
                if self.args.turn:
                    self.store(item["conversation"]["resource"], threads[done:])
                    self.ask_others(item["conversation"]["resource"])

    def store(self, resource: str, threads: Sequence[Json]) -> None:
        memory = self.memories[self.args.search[0]]
        for thread in threads:
            messages = [as_message(message, named=self.args.names) for message in thread["messages"]]
            for first in range(0, len(messages), 200):
                memory.history.append(messages[first : first + 200], thread_id=thread["id"], resource_id=resource)

    def ask(self, conversation: Json, question: Json) -> None:
        sizes = {message["id"]: max(1, math.ceil(len(message["text"]) / 4)) for message in messages_of(conversation)}
        gold = question["evidence_message_ids"]
        self.categories.append(question.get("category", ""))
        for name, figures in self.figures.items():
            noted = np.zeros((len(self.args.top_k), len(self.args.ranges), 4))
            for place in np.ndindex(noted.shape[:2]):
                start = time.perf_counter()
                top_k, width = self.args.top_k[place[0]], self.args.ranges[place[1]]
                result = self.recall(name, question["question"], conversation["resource"], top_k, width)
                figures.seconds.append(time.perf_counter() - start)
                found = {message.id for message in result.messages}
                hits = sum(id in found for id in gold)
                tokens = sum(min(sizes[str(one.id)], math.ceil(len(one.text) / 4)) for one in result.messages)
                noted[place] = hits > 0, hits / len(gold), hits == len(gold), tokens
            figures.rows.append(noted)

    def recall(self, name: str, question: str, resource: str, top_k: int, width: int) -> RecallResult:
        search, _, turn = name.partition(", ")
        memory = self.memories[cast("Search", search)]
        if not turn:
            return memory.recall.search(question, resource_id=resource, top_k=top_k, message_range=width)
        context = memory.context(
            question, thread_id="a new conversation", resource_id=resource, top_k=top_k, message_range=width
        )
        return context.recalled

    def ask_others(self, resource: str) -> None:
        for name, question in product(self.figures, self.unrelated):
            found = self.recall(name, question, resource, self.args.top_k[0], self.args.ranges[0])
            self.figures[name].silent.append(not found.hits)

    def close(self) -> None:
        for memory in self.memories.values():
            memory.close()


def load(path: Path) -> Json:
    text = path.read_bytes()
    return cast("Json", json.loads(gzip.decompress(text) if path.suffix == ".gz" else text))


def questions_of(data: Json) -> list[str]:
    """Return what is asked of all users, but for questions with a false premise."""
    asked = (question for item in data["items"] for question in item["questions"])
    return [str(one["question"]) for one in asked if one.get("category") != "adversarial"]


def picked(questions: list[Json], number: int | None) -> list[Json]:
    """Take every n-th question, such that about `number` remain; in the order in which their threads become known."""
    chosen = questions[:: max(1, len(questions) // number)] if number else questions
    return sorted(chosen, key=lambda question: question.get("after_thread", 0))


def messages_of(conversation: Json) -> Iterator[Json]:
    return (message for thread in conversation["threads"] for message in thread["messages"])


def as_message(message: Json, *, named: bool = True) -> BaseMessage:
    """Make a message, named by its speaker where that is a person and not a role."""
    kind = HumanMessage if message["role"] == "user" else AIMessage
    speaker = message.get("speaker") if named else None
    name = None if speaker is None or speaker.casefold() in ROLES else speaker
    return kind(message["text"], id=message["id"], name=name)


# ---------------------------------------------------------------------- what comes out


def at_budget(mean: Array, budget: int) -> float:
    """Interpolate the share of the evidence at a number of tokens; of the message ranges, the best."""
    curves = [(mean[:, place, TOKENS], mean[:, place, SHARE]) for place in range(mean.shape[1])]
    inside = [float(np.interp(budget, tokens, share)) for tokens, share in curves if tokens[0] <= budget <= tokens[-1]]
    return max(inside, default=math.nan)


def interval(first: Array, second: Array, budget: int, seed: int) -> tuple[float, float]:
    """Bootstrap over questions: between which bounds are 95 % of the differences?"""
    rng = np.random.default_rng(seed)
    draws = (rng.integers(0, len(first), len(first)) for _ in range(SAMPLES))
    found = [at_budget(second[draw].mean(0), budget) - at_budget(first[draw].mean(0), budget) for draw in draws]
    low, high = np.nanpercentile(found, [2.5, 97.5]) if not np.isnan(found).all() else (math.nan, math.nan)
    return float(low), float(high)


def short(value: float, *, sign: bool = False) -> str:
    if math.isnan(value):
        return ""
    text = f"{value:+.3f}" if sign else f"{value:.3f}"
    return text.replace("0.", ".", 1)


def recall_at_k(found: dict[str, Array], args: argparse.Namespace) -> Iterator[str]:
    """Show any, share and all, and the tokens that came back."""
    yield row("top_k", "range", *(f"{search}: any | share | all | tokens" for search in found))
    yield row(*["--:"] * (2 + 4 * len(found)))
    for place in np.ndindex(len(args.top_k), len(args.ranges)):
        cells = [
            f"{short(any)} | {short(share)} | {short(all)} | {tokens:.0f}"
            for any, share, all, tokens in (rows[:, *place].mean(0) for rows in found.values())
        ]
        yield row(args.top_k[place[0]], args.ranges[place[1]], *cells)


def by_budget(title: str, found: dict[str, Array], args: argparse.Namespace) -> Iterator[str]:
    """Show each search as a row, and what the last one gains over the first."""
    for search, rows in found.items():
        yield row(title, search, *(short(at_budget(rows.mean(0), budget)) for budget in BUDGETS))
    if len(found) > 1:
        first, second = list(found.values())
        cells = []
        for budget in BUDGETS:
            gain = at_budget(second.mean(0), budget) - at_budget(first.mean(0), budget)
            bounds = ", ".join(short(bound, sign=True) for bound in interval(first, second, budget, args.seed))
            cells.append("" if math.isnan(gain) else f"{short(gain, sign=True)} [{bounds}]")
        yield row(title, "gain", *cells)


def turns(title: str, figures: dict[str, Figures], found: dict[str, Array], args: argparse.Namespace) -> Iterator[str]:
    """Show what a turn loses of the evidence, and how often it brings nothing."""
    rng = np.random.default_rng(args.seed)
    for search in args.search:
        base, turn = (found[name][:, 0, 0] for name in (search, f"{search}, turn"))
        lost = base[:, SHARE] - turn[:, SHARE]
        draws = [lost[rng.integers(0, len(lost), len(lost))].mean() for _ in range(SAMPLES)]
        low, high = (short(bound, sign=True) for bound in np.percentile(draws, [2.5, 97.5]))
        silent = np.reshape(figures[f"{search}, turn"].silent, (-1, len(NONSENSE) + UNRELATED))
        yield row(
            title,
            search,
            f"{base[:, TOKENS].mean():,.0f}",
            f"{turn[:, TOKENS].mean():,.0f}",
            short(base[:, SHARE].mean()),
            f"{short(lost.mean(), sign=True)} [{low}, {high}]",
            f"{silent[:, len(NONSENSE) :].mean():.0%}",
            f"{silent[:, : len(NONSENSE)].mean():.0%}",
        )


def curve(rows: Array) -> Json:
    """Give the best share at each number of tokens, for plots.py."""
    mean = rows.mean(0)
    budgets = [round(100 * 1.25**step) for step in range(20)]
    return {str(budget): share for budget in budgets if not math.isnan(share := at_budget(mean, budget))}


def weights(text: str) -> HybridWeights:
    """Read weights, such as neighbours=0,length=0; the others are as they are."""
    return HybridWeights(**{name: float(value) for name, _, value in (pair.partition("=") for pair in text.split(","))})


def floor(text: str) -> Floor:
    """Read a floor: where words of the question were found, and where none was."""
    worded, alone = map(float, text.split(","))
    return Floor(worded, alone)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--embeddings", default="local", help="local, minilm, or what Memory(embeddings=...) takes")
    parser.add_argument("--search", default="semantic,hybrid")
    parser.add_argument(
        "--turn", action="store_true", help="what a turn shows, beside a search; of the grid the first point"
    )
    parser.add_argument("--floor", type=floor, help="of --turn, in place of the model's own: 0.22,0.3")
    parser.add_argument("--weights", type=weights, default=HybridWeights(), help="of hybrid: neighbours=0,length=0")
    parser.add_argument("--no-names", dest="names", action="store_false", help="leave the names of speakers out")
    parser.add_argument("--grid", help=f"values of top_k x values of message_range ({GRID}; with --turn 4x1)")
    parser.add_argument("--limit", type=int, default=0, help="about so many questions of each file")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    parser.add_argument("--cache", type=Path, help="a file that keeps vectors from one run to the next")
    parser.add_argument("--out", type=Path, help="write the curves as JSON, for plots.py")
    args = parser.parse_args()
    args.search = args.search.split(",")
    args.top_k, args.ranges = (
        [int(value) for value in part.split(",")] for part in (args.grid or ("4x1" if args.turn else GRID)).split("x")
    )
    if args.floor:
        vars(plans)["floor_of"] = lambda _: args.floor
    model = Kept(args.embeddings, args.cache)
    summary = [row("data set, questions", "search", *(f"{budget:,}" for budget in BUDGETS))]
    summary.append(row("---", "---", *["--:"] * len(BUDGETS)))
    shown = [
        row("data set, questions", "search", "tokens", "in a turn", "share", "lost", "silent: unrelated", "nonsense")
    ]
    shown.append(row("---", "---", *["--:"] * 6))
    data = {path: load(path) for path in args.files}
    curves: Json = {}
    with EmbeddedRedis() as server:
        for path in args.files:
            name = path.name.partition(".")[0]
            others = [one for other in args.files if other != path for one in questions_of(data[other])]
            unrelated = [*NONSENSE, *(others[:: max(1, len(others) // UNRELATED)] * UNRELATED)[:UNRELATED]]
            bench = Bench(server.url, model, args, prefix=f"quality-{name}", unrelated=unrelated)
            bench.run(data[path])
            for adversarial in (False, True):
                wanted = [(category == "adversarial") == adversarial for category in bench.categories]
                if not any(wanted):
                    continue
                found = {search: figures.only(wanted) for search, figures in bench.figures.items()}
                title = f"{name}{', adversarial' if adversarial else ''}, {sum(wanted)}"
                print(f"\n## {title} questions, {args.embeddings}\n", *recall_at_k(found, args), sep="\n")
                if args.turn:
                    shown += turns(title, bench.figures, found, args)
                    continue
                summary += by_budget(title, found, args)
                if not adversarial:
                    curves[title] = {search: curve(rows) for search, rows in found.items()}
            for search, figures in bench.figures.items():
                print(f"\n{search}: p50 of a recall {statistics.median(figures.seconds) * 1000:.2f} ms")
            bench.close()
    if args.turn:
        print(f"\n## What a turn shows, {args.embeddings}\n", *shown, sep="\n")
        return
    print(f"\n## Share of the evidence at an equal number of tokens, {args.embeddings}\n", *summary, sep="\n")
    if args.out:
        args.out.write_text(json.dumps({"embeddings": args.embeddings, "curves": curves}, indent=1) + "\n")


if __name__ == "__main__":
    main()
