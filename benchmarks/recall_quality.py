"""How much of what a question is about does recall bring back? docs/recall.md explains the method and shows figures.

    python benchmarks/recall_quality.py locomo.json.gz realmem.json.gz --embeddings minilm

`workingmem eval` measures in the same way; this script adds what only we need: a cache of vectors, the recall of every point
of a grid, and curves for plots.py. It reads the same formats. The public data sets are in a common form, as JSON,
gzipped if the name ends in .gz:

    {"causal": false, "items": [{
        "conversation": {"id": "c", "resource": "maya", "threads": [
            {"id": "c/1", "messages": [{"id": "c/1/0", "speaker": "Maya", "role": "user", "text": "..."}]}]},
        "questions": [{"id": "q", "category": "temporal", "question": "...", "evidence_message_ids": ["c/1/0"]}]}]}

An item is all that one resource said, and what is asked about it; whatever else the objects hold is ignored. In a causal
data set a question has "after_thread": how many threads exist when it is asked. Messages may have a "timestamp", questions
a "question_date". Questions of the category "adversarial", whose premise is false, have a table of their own.

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
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, cast

import numpy as np
from common import row
from langchain_core.embeddings import Embeddings
from minilm import model_of
from tqdm import tqdm

from langchain_workingmem import HybridWeights, IndexOptions, RecallOptions
from langchain_workingmem._engine.embedder import name_of
from langchain_workingmem._text.chunks import count_tokens
from langchain_workingmem.embedded import EmbeddedRedis
from langchain_workingmem.evaluation import (
    ADVERSARIAL,
    SAMPLES,
    SHARE,
    TOKENS,
    Bench,
    Measured,
    Variant,
    between,
    compare,
    questions_of,
    read,
    short,
)
from langchain_workingmem.recall import reindex
from langchain_workingmem.recall.ranking import Floor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from langchain_workingmem.evaluation import DataSet, Question, Resource
    from langchain_workingmem.models import RecallResult

    Json: TypeAlias = dict[str, Any]

GRID = "1,2,3,5,8,10,15,20,30,50,80,120x0,1,2"
BUDGETS = (250, 500, 1000, 2000, 4000)
SHOWN = ("tokens", "in a turn", "share", "lost", "silent: unrelated", "nonsense")
UNRELATED = 40  # questions of other data sets that each user is asked
NONSENSE = ("asdf qwer", "qwertyuiop", "fjdksla gjkhf", "xyzzy plugh", "1234567890")


class Kept(Embeddings):
    """A model whose vectors are kept in a file, since the same texts are measured again and again."""

    def __init__(self, name: str, path: Path | None) -> None:
        self._name = name
        self._db = sqlite3.connect(path or ":memory:")
        self._db.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")
        self._inner = model_of(name)
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
class Turn:
    """What turns showed by one search."""

    rows: list[tuple[float, float, float, float]] = field(default_factory=list)  # of each question, as in `Measured`
    silent: list[bool] = field(default_factory=list)  # for each unrelated question: nothing came back
    seconds: list[float] = field(default_factory=list)

    def ask(self, bench: Bench, at: int, resource: Resource, question: Question) -> None:
        start = time.perf_counter()
        result = self._recalled(bench, at, resource, question.text)
        self.seconds.append(time.perf_counter() - start)
        found = question.evidence & {(one.thread_id, str(one.message.id)) for one in result.rows}
        share = len(found) / len(question.evidence)
        self.rows.append((share > 0, share, share == 1, sum(count_tokens(str(one.text)) for one in result.messages)))

    def ask_others(self, bench: Bench, at: int, resource: Resource, unrelated: Sequence[str]) -> None:
        for question in unrelated:
            self.silent.append(not self._recalled(bench, at, resource, question).hits)

    def _recalled(self, bench: Bench, at: int, resource: Resource, question: str) -> RecallResult:
        variant = bench.variants[at]
        context = bench.memories[at].context(
            question,
            thread_id="a new conversation",
            resource_id=resource.id,
            top_k=variant.top_k[0],
            message_range=variant.ranges[0],
        )
        return context.recalled


def load(path: Path, *, named: bool) -> DataSet:
    """Read a data set; leave the names of speakers out if they are not wanted."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        (data,) = read([(path.name, cast("TextIO", file))])
    for record in () if named else (record for resource in data.resources for record in resource.messages):
        record["message"]["data"]["name"] = None
    return data


def run(bench: Bench, data: DataSet, turns: Sequence[Turn], unrelated: Sequence[str]) -> None:
    for resource, question in tqdm(bench.asked(), desc="questions", total=len(bench), leave=False):
        bench.measure(resource, question)
        for at, turn in enumerate(turns):
            turn.ask(bench, at, resource, question)
    for resource in data.resources if turns else ():
        bench.store(resource, len(resource.messages))
        for at, turn in enumerate(turns):
            turn.ask_others(bench, at, resource, unrelated)


# ---------------------------------------------------------------------- what comes out


def table_of(*columns: str) -> list[str]:
    """Begin a table."""
    return [row("data set, questions", "search", *columns), row("---", "---", *["--:"] * len(columns))]


def recall_at_k(found: dict[str, Measured], args: argparse.Namespace) -> Iterator[str]:
    """Show any, share and all, and the tokens that came back."""
    yield row("top_k", "range", *(f"{search}: any | share | all | tokens" for search in found))
    yield row(*["--:"] * (2 + 4 * len(found)))
    for place in np.ndindex(len(args.top_k), len(args.ranges)):
        cells = [
            f"{short(any)} | {short(share)} | {short(all)} | {tokens:.0f}"
            for any, share, all, tokens in (one.rows[:, *place].mean(0) for one in found.values())
        ]
        yield row(args.top_k[place[0]], args.ranges[place[1]], *cells)


def by_budget(title: str, found: dict[str, Measured], args: argparse.Namespace) -> Iterator[str]:
    """Show each search as a row, and what the last one gains over the first."""
    table = compare([*found.values()], BUDGETS, args.seed)
    for search, cells in zip(found, table, strict=True):
        yield row(title, search, *(short(cell.share) for cell in cells))
    if len(found) > 1:
        gains = [f"{short(cell.gain, sign=True)} {between(cell.gain_interval, sign=True)}" for cell in table[-1]]
        yield row(title, "gain", *("" if gain.startswith(" ") else gain for gain in gains))


def shown(base: Measured, turn: Measured, silent: Sequence[bool], args: argparse.Namespace) -> Iterator[object]:
    """Show what a turn loses of the evidence, and how often it brings nothing."""
    rng = np.random.default_rng(args.seed)
    before, after = (one.rows[:, 0, 0] for one in (base, turn))
    lost = before[:, SHARE] - after[:, SHARE]
    draws = [lost[rng.integers(0, len(lost), len(lost))].mean() for _ in range(SAMPLES)]
    low, high = np.percentile(draws, [2.5, 97.5])
    others = np.reshape(silent, (-1, len(NONSENSE) + UNRELATED))
    yield from (f"{before[:, TOKENS].mean():,.0f}", f"{after[:, TOKENS].mean():,.0f}", short(before[:, SHARE].mean()))
    yield f"{short(lost.mean(), sign=True)} {between((low, high), sign=True)}"
    yield from (f"{others[:, len(NONSENSE) :].mean():.0%}", f"{others[:, : len(NONSENSE)].mean():.0%}")


def curve(one: Measured) -> Json:
    """Give the best share at each number of tokens, for plots.py."""
    mean = one.rows.mean(0)
    budgets = [round(100 * 1.25**step) for step in range(20)]
    return {str(budget): share for budget in budgets if not math.isnan(share := one.share(mean, budget))}


def weights(text: str) -> HybridWeights:
    """Read weights, such as neighbours=0,length=0; the others are as they are."""
    return HybridWeights(**{name: float(value) for name, _, value in (pair.partition("=") for pair in text.split(","))})


def floor(text: str) -> Floor:
    """Read a floor: where words of the question were found, and where none was."""
    worded, alone = map(float, text.split(","))
    return Floor(worded, alone)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--embeddings", default="local", help="local, minilm or provider:model")
    parser.add_argument("--search", default="semantic,hybrid")
    parser.add_argument(
        "--turn", action="store_true", help="what a turn shows, beside a search; of the grid the first point"
    )
    parser.add_argument("--floor", type=floor, help="of --turn, in place of the model's own: 0.22,0.3")
    parser.add_argument("--weights", type=weights, default=HybridWeights(), help="of hybrid: neighbours=0,length=0")
    parser.add_argument("--dtype", help="number type of the vectors; int8 needs Redis 8, see WORKINGMEM_REDIS_SERVER")
    parser.add_argument("--no-names", dest="names", action="store_false", help="leave the names of speakers out")
    parser.add_argument("--grid", help=f"values of top_k x values of message_range ({GRID}; with --turn 4x1)")
    parser.add_argument("--limit", type=int, default=0, help="about so many questions of each file")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    parser.add_argument("--cache", type=Path, help="a file that keeps vectors from one run to the next")
    parser.add_argument("--out", type=Path, help="write the curves as JSON, for plots.py")
    args = parser.parse_args()
    args.top_k, args.ranges = (
        sorted(map(int, part.split(","))) for part in (args.grid or ("4x1" if args.turn else GRID)).split("x")
    )
    return args


def main() -> None:
    args = arguments()
    if args.floor:
        vars(reindex)["floor_of"] = lambda _: args.floor
    model = Kept(args.embeddings, args.cache)
    variants = [
        Variant(
            label=search,
            options=RecallOptions(search=search, weights=args.weights, index=IndexOptions(dtype=args.dtype)),
            top_k=tuple(args.top_k),
            ranges=tuple((number, number) for number in args.ranges),
        )
        for search in args.search.split(",")
    ]
    summary, lost = table_of(*(f"{budget:,}" for budget in BUDGETS)), table_of(*SHOWN)
    data = {path: load(path, named=args.names) for path in args.files}
    curves: Json = {}
    with EmbeddedRedis() as server:
        for path in args.files:
            name = path.name.partition(".")[0]
            others = [one for other in args.files if other != path for one in questions_of(data[other])]
            unrelated = [*NONSENSE, *(others[:: max(1, len(others) // UNRELATED)] * UNRELATED)[:UNRELATED]]
            turns = [Turn() for _ in variants if args.turn]
            prefix, limit = f"quality-{name}", args.limit or None
            bench = Bench(server.url, data[path], variants, model_of=lambda _: model, key_prefix=prefix, limit=limit)
            with closing(bench):
                run(bench, data[path], turns, unrelated)
            for adversarial in (False, True):
                wanted = [(category == ADVERSARIAL) == adversarial for category in bench.categories]
                if not any(wanted):
                    continue
                found = {variant.label: one for variant, one in zip(variants, bench.results(wanted), strict=True)}
                for search, turn in zip([*found], turns, strict=False):
                    rows = np.array(turn.rows, float)[wanted][:, None, None]
                    found[f"{search}, turn"] = Measured(rows, (args.top_k[0],))
                title = f"{name}{', adversarial' if adversarial else ''}, {sum(wanted)}"
                print(f"\n## {title} questions, {args.embeddings}\n", *recall_at_k(found, args), sep="\n")
                for variant, turn in zip(variants, turns, strict=False):
                    both = found[variant.label], found[f"{variant.label}, turn"]
                    lost.append(row(title, variant.label, *shown(*both, turn.silent, args)))
                if args.turn:
                    continue
                summary += by_budget(title, found, args)
                if not adversarial:
                    curves[title] = {search: curve(one) for search, one in found.items()}
            for variant, seconds in zip(variants, bench.seconds, strict=True):
                print(
                    f"\n{variant.label}: p50 of a search with its embedding {statistics.median(seconds) * 1000:.2f} ms"
                )
            for variant, turn in zip(variants, turns, strict=False):
                print(f"\n{variant.label}, turn: p50 {statistics.median(turn.seconds) * 1000:.2f} ms")
    if args.turn:
        print(f"\n## What a turn shows, {args.embeddings}\n", *lost, sep="\n")
        return
    print(f"\n## Share of the evidence at an equal number of tokens, {args.embeddings}\n", *summary, sep="\n")
    if args.out:
        args.out.write_text(json.dumps({"embeddings": args.embeddings, "curves": curves}, indent=1) + "\n")


if __name__ == "__main__":
    main()
