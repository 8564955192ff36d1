"""Recall of files: the chunks of their texts in an index of their own. Loaded where `FileOptions(recall=True)` asks for it."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import sys
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from langchain_workingmem._engine.effects import Embed, Plan, Scan, T, attempt, compute, scan, send
from langchain_workingmem._redis.access import run_script
from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.indexes import (
    ensure_index,
    no_index,
    register_index_settings,
    search_with_repair,
)
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._redis.queries import (
    MAX_QUERY_CHARACTERS,
    build_filter,
    columns,
    files_schema,
    numbers,
    similarities,
    total_of,
    vector_search,
    word_search,
    words_of,
)
from langchain_workingmem._redis.rooms import HOOKS, Room
from langchain_workingmem._redis.scripts import Script
from langchain_workingmem._text.chunks import count_tokens, keep_ends, spans
from langchain_workingmem._text.telling import as_searched, telling_words
from langchain_workingmem.errors import OptionError, Remedy, ResourceDeletedError, WorkingMemError
from langchain_workingmem.models import FileHit
from langchain_workingmem.recall import (
    FEWEST,
    STANDING_OUT,
    Candidates,
    Gate,
    embed_query,
    known_floor,
    rank,
    reaches,
    trust_in_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

    from langchain_workingmem._engine.effects import Argument, Command
    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.recall import Query, Ranked

_log = logging.getLogger("langchain_workingmem")
WAITING, INDEX = (Script(f"files/{name}", "files/tree", "files/found") for name in ("waiting", "index"))
CHUNKS = 64  # of one script, and of one call of the model
SLICES = 10  # of waiting files that a change embeds at most, of 100 files or 256 KiB each
DEPTH = 30  # chunks of each search at least: they come with their texts
MOST_LABEL = 100  # characters of a path that are embedded and searched with each chunk
_FIELDS = ("path", "at", "text", "shown")
_NO_WORDS = re.compile(r"[\W_]+")


@dataclass(slots=True)
class Known:
    """What this process knows of the index of files."""

    dims: int | None = None  # None: it is not known to exist


class Piece(NamedTuple):
    """Chunks of a file that one script stores."""

    path: str
    revision: bytes
    first: int  # number of the first of them
    total: int  # chunks of the file
    lines: Sequence[str]
    texts: Sequence[str]  # each with the words of the path in a line in front


def ready(state: MemoryState) -> Plan[None]:
    """Create or check the index of files, which is built as that of messages: round trips at the first use only."""
    known, indexes, keys = state.room(Known), state.indexes, state.keys
    yield from indexes.setup()
    if (dims := indexes.dims) is None or known.dims == dims:
        return
    wanted = indexes.index_settings(dims, {"datatype": indexes.dtype})
    stored, _ = yield from register_index_settings(keys.files_settings, wanted, create=indexes.create)
    if stored is None:
        raise no_index(f"there is no index {keys.files_index!r}")
    if {**stored, "model": wanted["model"]} != wanted:  # that of messages was rebuilt
        if not indexes.create:
            raise OptionError("the index of files was built with other settings", remedy=Remedy("{index}"))
        yield from send(("SET", keys.files_settings, json.dumps(wanted)))
        yield from attempt(("FT.DROPINDEX", keys.files_index))
    if indexes.create:
        attributes = {name: value for name, value in wanted.items() if name != "model"}
        yield from ensure_index(files_schema(keys, attributes))
    known.dims = dims


def refresh(state: MemoryState, dims: int) -> Plan[None]:
    """Check all indexes again, and create what is missing."""
    state.room(Known).dims = None
    yield from state.indexes.refresh(dims)
    yield from ready(state)


# ---------------------------------------------------------------------- index


def indexed(state: MemoryState, resource_id: str, path: str, plan: Plan[T]) -> Plan[T]:
    """Change files, and embed what has changed. The change stands if that fails: the next one goes on with it."""
    result = yield from plan
    try:
        yield from index(state, resource_id, path)
    except WorkingMemError as error:
        _log.warning(
            "%s is changed, but recall does not find it until the next change, or files.reindex(): %s", path, error
        )
    return result


def index(
    state: MemoryState, resource_id: str, path: str = "", *, anew: bool = False, slices: int | None = SLICES
) -> Plan[int]:
    """Embed the files of an owner that wait for it, `path` first; return how many. Two round trips and a call of the model a slice.

    With `anew` also those that have no vectors, or of other settings.
    """
    keys = state.keys.files_of_resource(check_id(resource_id, "resource_id"))
    yield from ready(state)
    digest, size = state.indexes.index_digest(state.indexes.dims or 0), state.recalling.chunk_tokens
    total, left = 0, 1
    while left and slices != 0:
        ((left, *found),) = yield from run_script("", resource_id, WAITING.call(keys, digest, int(anew), path))
        anew, slices = False, slices and slices - 1
        cut = partial(_batches, found, size)
        for batch in (yield from compute(cut, sum(map(len, found[2::3])))):
            texts = [text for piece in batch for text in piece.texts]
            packed: Iterator[bytes] = iter(())
            if texts:
                vectors = yield from Embed(texts)
                yield from state.indexes.vectors_ready(vectors.shape[1])
                packed = iter(state.indexes.pack(vectors))
            head = (digest, encode(resource_id))
            calls = [INDEX.call(keys, *_arguments(piece, head, packed)) for piece in batch]
            replies = yield from run_script("", resource_id, *calls)
            total += sum(
                reply[0] == 1 and piece.first + len(piece.texts) == piece.total
                for piece, reply in zip(batch, replies, strict=True)
            )
    return total


def _arguments(piece: Piece, head: Sequence[str], vectors: Iterator[bytes]) -> list[Argument]:
    arguments: list[Argument] = [piece.path, piece.revision, *head, within(piece.path), piece.first, piece.total]
    for lines, text in zip(piece.lines, piece.texts, strict=True):
        searched = as_searched(text)
        arguments += [lines, searched, "" if searched == text else text, next(vectors)]
    return arguments


def _batches(found: Sequence[bytes], chunk_tokens: int) -> list[list[Piece]]:
    """Cut the texts of files (path, revision, text, ...) into pieces, and join these for calls of the model."""
    batches: list[list[Piece]] = [[]]
    for path, revision, text in zip(found[::3], found[1::3], found[2::3], strict=True):
        for piece in _pieces(path.decode(), revision, text.decode(), chunk_tokens):
            if sum(len(one.texts) for one in batches[-1]) + len(piece.texts) > CHUNKS:
                batches.append([])
            batches[-1].append(piece)
    return [batch for batch in batches if batch]


def _pieces(path: str, revision: bytes, text: str, chunk_tokens: int) -> Iterator[Piece]:
    lines, texts = [], []
    label = _NO_WORDS.sub(" ", path).strip()[-MOST_LABEL:]
    at, line = 0, 1
    for start, end in spans(text, chunk_tokens):
        line += text.count("\n", at, start)
        at = start
        last = line + text.count("\n", start, end)
        lines.append(f"{line} {last}")
        texts.append(f"{label}\n{text[start:end]}")
    for first in range(0, max(1, len(texts)), CHUNKS):
        chosen = slice(first, first + CHUNKS)
        yield Piece(path, revision, first, len(texts), lines[chosen], texts[chosen])


def within(path: str) -> str:
    """Return the tags by which a search finds what is at or below a path."""
    parts = path.split("/")
    return ",".join(_digest("/".join(parts[: at + 1])) for at in range(1, len(parts)))


def _digest(path: str) -> str:
    return hashlib.sha1(path.encode(), usedforsecurity=False).hexdigest()[:16]


def reindex(state: MemoryState, resource_id: str | None) -> Plan[int]:
    """Embed the files of an owner, or of all, that lack vectors of the present settings; return how many."""
    if resource_id is not None:
        return (yield from index(state, resource_id, anew=True, slices=None))
    total, step = 0, cast("Scan | None", Scan(f"{state.keys.prefix}:files:paths:r:{{*"))
    while step is not None:
        keys, step = yield from scan(step)
        for owner in {state.keys.thread_of(key) for key in keys}:
            try:
                total += yield from index(state, owner, anew=True, slices=None)
            except ResourceDeletedError:
                continue
    return total


# ---------------------------------------------------------------------- search


@dataclass(slots=True)
class Search:
    """A search in the files of one owner, for itself or beside that of a turn."""

    state: MemoryState
    resource_id: str
    text: str
    top_k: int
    path: str = "/"
    _asked: list[str] = field(init=False)

    def __post_init__(self) -> None:
        question = keep_ends(self.text, MAX_QUERY_CHARACTERS)
        telling = {*as_searched(" ".join(telling_words(question))).split()}
        asked = words_of(question) if self.state.recalling.search == "hybrid" else []
        self._asked = [word for word in asked if word in telling] or asked  # the others are in texts about anything

    def refresh(self, dims: int) -> Plan[None]:
        """Repair the indexes."""
        return refresh(self.state, dims)

    def commands(self, vector: np.ndarray[Any, Any]) -> list[Command]:
        """Return what searches with the vector of the question, and with its words."""
        where = build_filter(resource_id=self.resource_id)
        if self.path != "/":
            where = f"({where} @within:{{{_digest(self.path)}}})"
        name, depth = self.state.keys.files_index, max(DEPTH, 4 * self.top_k)
        found = [vector_search(name, self.state.indexes.pack(vector)[0], where, depth, _FIELDS)]
        return [*found, word_search(name, self._asked, where, depth, _FIELDS)] if self._asked else found

    def found(
        self, replies: Sequence[Any], threshold: float = 0.0
    ) -> tuple[list[tuple[Ranked, FileHit]], float | None]:
        """Rank what the commands have found, as messages are ranked; return also the similarity of what is ordinary."""
        import numpy as np

        options = self.state.recalling
        keys, ranks, rows = columns(replies[0], "sortkey")
        values, near = similarities(numbers(ranks), options.index.distance), len(keys)
        for reply in replies[1:]:
            more, scores, their_rows = columns(reply, "score")
            keys, values, rows = keys + more, np.concatenate((values, numbers(scores))), rows + their_rows
        fields = [as_dict(row or {}) for row in rows]
        kept = [b"at" in one for one in fields]  # others have changed during the search
        near, values, fields = sum(kept[:near]), values[kept], [*compress(fields, kept)]
        if not fields:
            return [], None
        names = [(digest, int(chunk)) for _, digest, chunk in (key.rsplit(b":", 2) for key in compress(keys, kept))]
        known = dict(zip(names, fields, strict=True))
        tokens, nothing = [count_tokens(one[b"text"].decode()) for one in fields], [b""] * len(names)
        seqs = np.array([chunk for _, chunk in names], np.int64)
        candidates = Candidates(near, [b"{%b}" % one for one, _ in names], seqs, tokens, nothing, values, nothing)
        trust = None
        if options.search == "hybrid":
            matching = total_of(replies[1]) if self._asked else 0
            trust = trust_in_words(values[near:][:STANDING_OUT].tolist(), len(self._asked), matching)
        ranked = rank(candidates, None, threshold=threshold, weights=options.weights, trust=trust, authors=())
        pairs = [(one, _hit(known[one.thread, one.seq], one)) for one in ranked]
        return pairs, float(values[near - 1]) if near >= FEWEST else None

    def shown(self, query: Query, replies: Sequence[Any]) -> list[FileHit]:
        """Return the passages that a turn shows: by the rules for messages, within half of its budget of tokens."""
        options = self.state.recalling
        pairs, ordinary = self.found(replies, query.threshold or 0.0)
        if query.threshold is None and options.index.distance != "l2":
            floor = known_floor(self.state)
            is_near = reaches([one for one, _ in pairs], floor, hybrid=options.search == "hybrid")
            gate = Gate.of(query.text, floor, ordinary)
            pairs = [
                (one, hit)
                for one, hit in pairs
                if (is_near or one.worded) and gate.admits_text(hit.text, one.similarity)
            ]
        left = inf if query.max_tokens is None else query.max_tokens // 2
        chosen = []
        for _, hit in pairs[: query.keep]:
            if hit.tokens <= left:
                chosen.append(hit)
                left -= hit.tokens
        return chosen


def _hit(row: dict[bytes, bytes], ranked: Ranked) -> FileHit:
    revision, _, _, first, last = row[b"at"].split()
    text = row.get(b"shown") or row[b"text"]
    return FileHit(
        path=row[b"path"].decode(),
        first_line=int(first),
        last_line=int(last),
        text=text.decode().partition("\n")[2],
        revision=int(revision),
        score=ranked.score,
        similarity=ranked.similarity,
    )


def beside(state: MemoryState, query: Query) -> Search | None:
    """Return what a turn searches beside messages."""
    return Search(state, query.resource_id, query.text, query.keep) if query.resource_id else None


def search(state: MemoryState, text: str, resource_id: str, top_k: int, path: str = "/") -> Plan[list[FileHit]]:
    """Find passages of files, the best first. One round trip, and one call of the model."""
    if not text.strip():
        return []
    finder = Search(state, resource_id, text, top_k, path)
    vector = yield from embed_query(state, keep_ends(text, MAX_QUERY_CHARACTERS))
    yield from ready(state)

    def find() -> Plan[list[Any]]:
        return send(*finder.commands(vector))

    heal = partial(refresh, state, vector.shape[1])
    replies = yield from search_with_repair(find, heal, create=state.indexes.create)
    start = path if path == "/" else f"{path}/"
    hits = [hit for _, hit in finder.found(replies)[0] if hit.path == path or hit.path.startswith(start)]
    return hits[:top_k]


HOOKS["file recall"] = cast("Room", sys.modules[__name__])
