"""How much of what a question is about does recall bring back? docs/recall-measured.md explains the method and shows figures.

    python benchmarks/recall_quality.py locomo.json.gz realmem.json.gz

The data sets are in a common form, as JSON, gzipped if the name ends in .gz:

    {"causal": false, "items": [{
        "conversation": {"id": "c", "user": "maya", "threads": [
            {"id": "c/1", "messages": [{"id": "c/1/0", "speaker": "Maya", "role": "user", "text": "..."}]}]},
        "questions": [{"id": "q", "category": "temporal", "question": "...", "evidence_message_ids": ["c/1/0"]}]}]}

An item is all that one user said, and what is asked about it; whatever else the objects hold is ignored. In a causal
data set a question has "after_thread": how many threads exist when it is asked. Messages may have a "timestamp", questions
a "question_date". Questions of the category "adversarial", whose premise is false, have rows of their own.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from common import row
from conversations import ADVERSARIAL, store, users_of
from minilm import model_of
from tqdm import tqdm

from langchain_workingmem import IndexOptions, Memory, RecallOptions
from langchain_workingmem._text.unicode import count_tokens
from langchain_workingmem.embedded import EmbeddedRedis

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conversations import Question, User

    from langchain_workingmem.models import RecallHit

    Array: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

BUDGETS = (250, 500, 1000, 2000, 4000)
TOP_K, RANGES = (1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 80), (0, 1, 2)
SAMPLES = 1000  # of the bootstrap


def ask(memory: Memory, user: User, question: Question) -> Array:
    """Return the share of the evidence and the tokens that came back, for each `message_range` and `top_k`.

    The hits of a search are ranked and do not depend on their windows, so one search with the most and the widest gives all.
    """
    most: Any = {"top_k": TOP_K[-1], "message_range": RANGES[-1]}
    hits = memory.recall.search(question.text, user_id=user.id, now=question.date, **most).hits
    return np.array([[*noted(hits, window, question.evidence)] for window in RANGES])


def noted(hits: Sequence[RecallHit], window: int, evidence: frozenset[str]) -> Iterator[tuple[float, float]]:
    seen: set[str] = set()
    found = tokens = 0
    points = [(0.0, 0.0)]
    for hit in hits:
        before = hit.before[max(0, len(hit.before) - window) :]
        for message in (*before, hit.message, *hit.after[:window]):
            if (id := str(message.id)) not in seen:
                seen.add(id)
                found, tokens = found + (id in evidence), tokens + count_tokens(str(message.text))
        points.append((found / len(evidence), float(tokens)))
    yield from (points[min(top_k, len(hits))] for top_k in TOP_K)


def share(mean: Array, budget: int) -> float:
    """Interpolate the share at a number of tokens; of the message ranges, the best. NaN where even one hit has more."""
    found = [np.interp(budget, points[:, 1], points[:, 0]) for points in mean if points[0, 1] <= budget]
    return float(max(found, default=np.nan))


def gains(base: Array, other: Array, seed: int) -> Iterator[str]:
    """Write what a search gains over another at each budget, with the interval that holds 95 % of samples of the questions."""
    rng = np.random.default_rng(seed)
    samples = [rng.integers(0, len(base), len(base)) for _ in range(SAMPLES)]
    for budget in BUDGETS:
        if np.isnan(share(base.mean(0), budget) + share(other.mean(0), budget)):
            yield ""
            continue
        drawn = [share(other[each].mean(0), budget) - share(base[each].mean(0), budget) for each in samples]
        low, high = np.nanpercentile(drawn, (2.5, 97.5))
        yield f"{share(other.mean(0), budget) - share(base.mean(0), budget):+.3f} [{low:+.3f}, {high:+.3f}]"


def measure(url: str, path: Path, search: str, args: argparse.Namespace) -> dict[bool, Array]:
    """Ask all questions of a data set at their moments; by whether their premise is false."""
    options = RecallOptions(search=search, index=IndexOptions(dtype=args.dtype))  # type: ignore[arg-type]
    rows: dict[bool, list[Array]] = {}
    prefix = f"{path.name.partition('.')[0]}-{search}"
    with Memory(url, key_prefix=prefix, embeddings=model_of(args.embeddings), recall=options) as memory:
        for user in tqdm(users_of(path), desc=prefix, leave=False):
            known = 0
            for question in user.questions[:: max(1, len(user.questions) // args.limit)]:
                if question.known > known:
                    store(memory, user, user.said[known : question.known])
                    known = question.known
                rows.setdefault(question.category == ADVERSARIAL, []).append(ask(memory, user, question))
    return {kind: np.array(found) for kind, found in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument(
        "--embeddings", default="local", help="what Memory(embeddings=...) takes: local, provider:model"
    )
    parser.add_argument("--search", default="semantic,hybrid")
    parser.add_argument("--dtype", help="number type of the vectors; int8 needs Redis 8, see WORKINGMEM_REDIS_SERVER")
    parser.add_argument("--limit", type=int, default=10**9, help="questions of each user, about")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap")
    args = parser.parse_args()
    searches = args.search.split(",")
    print(row("data set, questions", "search", *(f"{budget:,}" for budget in BUDGETS)))
    print(row("---", "---", *["--:"] * len(BUDGETS)))
    with EmbeddedRedis() as server:
        for path in args.files:
            found = {search: measure(server.url, path, search, args) for search in searches}
            for kind, search in product((False, True), searches):
                rows = found[search].get(kind)
                if rows is None:
                    continue
                title = f"{path.name.partition('.')[0]}{', adversarial' if kind else ''}, {len(rows)}"
                mean = rows.mean(0)
                print(row(title, search, *(f"{share(mean, budget):.3f}" for budget in BUDGETS)))
                if search != searches[0]:
                    print(row(title, "gain", *gains(found[searches[0]][kind], rows, args.seed)))


if __name__ == "__main__":
    main()
