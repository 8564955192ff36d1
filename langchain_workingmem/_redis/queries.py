"""Commands that create indexes and search them, built with redisvl, or by hand where it cannot; and their replies."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import orjson

from langchain_workingmem._redis.codec import as_dict
from langchain_workingmem._redis.filters import EVERYTHING
from langchain_workingmem._redis.keys import check_id, encode
from langchain_workingmem._text.unicode import WORD, as_searched
from langchain_workingmem._text.values import shown
from langchain_workingmem.errors import ArgumentError, EmbeddingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    # redisvl is slow to import, so it is imported where a command is built
    from redisvl.query import BaseQuery

    from langchain_workingmem._engine.plan import Argument, Command
    from langchain_workingmem._redis.keys import Keys
    from langchain_workingmem.errors import RedisReplyError
    from langchain_workingmem.options import NumberType

    Floats = np.ndarray[Any, np.dtype[np.float64]]

_TAG = {"case_sensitive": True, "separator": ","}  # values are percent-encoded or hex: no comma can occur
_NO_WORD, _ESCAPED = re.compile(r"[^A-Za-z0-9]"), r"\\\g<0>"  # in an encoded id
_COUNTED_APART = 20  # words of a union that Search reads one by one, and then loses some of
_LONGEST_FILTERS = 50_000  # characters of the filters of all words; ids of expired threads may make one long
MAX_QUERY_WORDS = 128  # distinct words of a query that BM25 looks for: the first and the last half
# Of a longer query (a pasted log), beginning and end are used: 1,000 tokens, more than most embedding models read.
MAX_QUERY_CHARACTERS = 4_000
# By default, Search stops after half a second with what it has. 8.10 stops after 60 seconds while search-workers is 0
# (search-_max-foreground-timeout-limit), and says in every RESP3 reply that the timeout was capped.
_NO_TIMEOUT = ("TIMEOUT", 0)
NOTHING = "@labels:{none}"  # no label is "none"
_STALE = {"SEARCH_INDEX_NOT_FOUND", "SEARCH_INDEX_DROPPED_BG", "SEARCH_VECTOR_BLOB_SIZE_MISMATCH"}  # codes of errors


# ---------------------------------------------------------------------- indexes


def threads_schema(keys: Keys) -> Command:
    """Build FT.CREATE for the index of threads."""
    fields = [*_tags("user", "labels"), *_sorted("created_at", "updated_at")]
    return _create(keys.threads_index, fields, keys.thread_prefix)


def vectors_schema(keys: Keys, attributes: Mapping[str, Any]) -> Command:
    """Build FT.CREATE for the index of vectors with these attributes of redisvl."""
    fields = [*_tags("user", "thread", "role", "labels"), {"name": "created_at", "type": "numeric"}]
    fields += [{"name": "text", "type": "text"}, {"name": "vector", "type": "vector", "attrs": attributes}]
    return _create(keys.vectors_index, fields, keys.vector_prefix)


def items_schema(keys: Keys) -> Command:
    """Build FT.CREATE for the index of store items."""
    namespace = {"name": "namespace", "type": "text", "attrs": {"sortable": True, "unf": True, "no_index": True}}
    fields = [*_tags("within", "labels", "vectors"), namespace, *_sorted("updated_at", "expires_at")]
    return _create(keys.items_index, fields, keys.item_prefix)


def item_vectors_schema(keys: Keys, attributes: Mapping[str, Any]) -> Command:
    """Build FT.CREATE for the index of the vectors of store items: the first is in the item itself."""
    vector = {"name": "vector", "type": "vector", "attrs": attributes}
    fields = [*_tags("within", "labels"), *_sorted("expires_at"), vector]
    return _create(keys.item_vectors_index, fields, keys.item_prefix, keys.item_vector_prefix)


def _tags(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": "tag", "attrs": _TAG} for name in names]


def _sorted(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "type": "numeric", "attrs": {"sortable": True}} for name in names]


def _create(name: str, fields: list[dict[str, Any]], *prefixes: str) -> Command:
    """Build FT.CREATE over hashes whose keys start with one of the prefixes."""
    from redisvl.schema import IndexSchema

    schema = IndexSchema.from_dict({"index": {"name": name}, "fields": fields})
    arguments = [argument for field in schema.redis_fields for argument in field.redis_args()]
    # BM25 does not read where in a text a word stands: without it a message takes about 100 bytes less
    return ("FT.CREATE", name, "ON", "HASH", "PREFIX", len(prefixes), *prefixes, "NOOFFSETS", "SCHEMA", *arguments)


# ---------------------------------------------------------------------- queries

# Redisvl takes 30 us to build a query. Those of recall differ in filter and vector alone, so the rest is built once.
_FILTER = "FILTER"


def pack(vectors: np.ndarray[Any, Any], dtype: NumberType, distance: str) -> list[bytes]:
    """Convert vectors to bytes for the index; `EmbeddingError` if a number does not fit into its type."""
    import numpy as np

    if dtype == "float32":  # which the embedder has checked
        return [row.tobytes() for row in vectors]
    if distance == "cosine":  # only the direction counts: the largest number becomes 1, which fits into every type
        vectors = vectors / np.maximum.reduce(np.abs(vectors), axis=1, keepdims=True, initial=1e-37)
        return [row.tobytes() for row in (np.rint(vectors * 127) if dtype == "int8" else vectors).astype(dtype)]
    with np.errstate(over="ignore", invalid="ignore"):
        packed = vectors.astype(dtype)
    if not np.isfinite(packed).all():
        problem = f"the embedding model gave numbers that {dtype} cannot hold"
        raise EmbeddingError(problem, remedy="use IndexOptions(dtype='float32')")
    return [row.tobytes() for row in packed]


def build_filter(
    *,
    user_id: str | None = None,
    thread_id: str | None = None,
    thread_ids: Sequence[str] | None = None,
    not_thread_ids: Sequence[str] = (),
    roles: Sequence[str] = (),
    metadata: str = EVERYTHING,
    since: int | None = None,
    until: int | None = None,
    time: str = "created_at",
) -> str:
    """Build the filter of a search; times are microseconds, inclusive. `metadata` is a condition of `Filter`."""
    ids = {"user": user_id, "thread": thread_id}
    tags = {name: check_id(id, f"{name}_id") for name, id in ids.items() if id is not None}
    parts: list[object] = [f"@{name}:{{{_escaped(id)}}}" for name, id in tags.items()]
    if thread_ids is not None:
        parts.append(f"@thread:{{{'|'.join(map(_escaped, thread_ids))}}}" if thread_ids else NOTHING)
    if not_thread_ids:
        parts.append(f"(-@thread:{{{'|'.join(map(_escaped, not_thread_ids))}}})")
    if roles or since is not None or until is not None:
        from redisvl.query.filter import Num, Tag

        parts += [Tag("role") == list(roles)] if roles else ()
        parts += [] if since is None else [Num(time) >= since]
        parts += [] if until is None else [Num(time) <= until]
    if metadata != EVERYTHING:
        parts.append(metadata)
    # one flat intersection: redisvl's `&` nests, and a thousand levels exceed Python's recursion limit
    return f"({' '.join(map(str, parts))})" if parts else "*"


@lru_cache(4096)
def _escaped(id: str) -> str:
    """Write an id for a tag field. redisvl does not escape `_`, and Search refuses a lone one."""
    return _NO_WORD.sub(_ESCAPED, encode(id))


def vector_search(index: str, vector: bytes, where: str, depth: int, fields: Sequence[str] = ()) -> Command:
    """Build a search for the `depth` nearest vectors; it returns the fields, and the distance as the sort key."""
    # a field of each document for the distance would take a fifth more of the server and a third more of the client
    command = _nearest(index, depth, tuple(fields))
    return (*command[:2], str(command[2]).replace(_FILTER, where, 1), *command[3:], vector)


@lru_cache(64)
def _nearest(index: str, depth: int, fields: tuple[str, ...]) -> Command:
    from redisvl.query import VectorQuery

    query = VectorQuery(b"", "vector", fields, _FILTER, num_results=depth, return_score=False)
    if not fields:
        query.no_content()
    return _search(index, query.query, "WITHSORTKEYS", "PARAMS", 2, "vector")


def distinct_words(text: str, *, whole: bool = False) -> list[str]:
    """Return the distinct words of a question to search for, in lower case, as `as_searched` divides it."""
    words = [*dict.fromkeys(WORD.findall(as_searched(text, whole=whole).lower()))]
    half = MAX_QUERY_WORDS // 2
    return words if len(words) <= MAX_QUERY_WORDS else [*words[:half], *words[-half:]]


def word_search(index: str, words: Sequence[str], where: str, depth: int, fields: Sequence[str] = ()) -> Command:
    """Build a BM25 search for any of these words, at least one; only the words make up the score."""
    # Words are parameters: nothing in them is syntax, and Search skips its own stop words. (Two of these, written out
    # at the beginning of a union, crash RediSearch 2.10.) The weight of 0 takes the filter out of the score; up to
    # Search 8.0 only for a group, so it stands twice; and in a filtered union not all words count, so each has its own.
    unscored, names = f"({where}|{where})=>{{$weight:0}}", [f"$w{number}" for number in range(len(words))]
    is_separate = len(words) <= _COUNTED_APART and len(words) * len(unscored) <= _LONGEST_FILTERS
    query = "|".join([f"(@text:({term}) {unscored})" for term in (names if is_separate else ["|".join(names)])])
    params = [part for number, word in enumerate(words) for part in (f"w{number}", word)]
    returned: Command = ("RETURN", len(fields), *fields) if fields else ("NOCONTENT",)
    options = ("SCORER", "BM25STD", "WITHSCORES", *returned, "DIALECT", 2, "LIMIT", 0, depth, *_NO_TIMEOUT)
    return ("FT.SEARCH", index, query, *options, "PARAMS", len(params), *params)


def sorted_search(
    index: str,
    where: str,
    order_by: str,
    *,
    limit: int,
    descending: bool = False,
    after: tuple[int, str] | None = None,
    fields: Sequence[str] = (),
) -> Command:
    """Build a sorted search for documents with these fields, or all; `after` is a time, and a key for equal times."""
    alive = "exists(@__key)"  # a document that has just expired would be an empty row
    if after is not None:
        last_time, last_key = after
        alive += f" && (@{order_by} != {last_time} || @__key > '{last_key}')"
    time = f"@{order_by}"
    order: tuple[Argument, ...] = ("SORTBY", 4, time, "DESC" if descending else "ASC", "@__key", "ASC")
    load: tuple[Argument, ...] = (len(fields), *(f"@{name}" for name in fields)) if fields else ("*",)
    return aggregate(index, where, "LOAD", 2, "@__key", time, "FILTER", alive, *order, "LIMIT", 0, limit, "LOAD", *load)


def count_search(index: str, where: str) -> Command:
    """Build a search that returns only the total."""
    from redisvl.query import CountQuery

    return _search(index, CountQuery(where))


def aggregate(index: str, where: str, *steps: Argument) -> Command:
    """Build FT.AGGREGATE, which has no cap on the number of results."""
    return ("FT.AGGREGATE", index, where, *steps, *_NO_TIMEOUT, "DIALECT", 2)


def _search(index: str, query: BaseQuery, *rest: Argument) -> Command:
    return ("FT.SEARCH", index, *query.get_args(), *_NO_TIMEOUT, *rest)


# ---------------------------------------------------------------------- replies


def total_of(reply: Any) -> int:
    """Return how many documents match, whatever the limit."""
    return int(reply[b"total_results"] if isinstance(reply, dict) else reply[0])


def columns(reply: Any, metric: str | None, *, content: bool) -> tuple[list[bytes], Floats, list[Any]]:
    """Return keys, similarities (without a `metric` BM25 scores) and fields of what was found, a column for each.

    Similarities go from 0 to 1, with "ip" above it for long vectors. A document that was deleted meanwhile has 0, None.
    """
    import numpy as np

    if isinstance(reply, dict):
        rows, rank_name = reply[b"results"], b"sortkey" if metric else b"score"
        keys, ranks = [row[b"id"] for row in rows], [row.get(rank_name) for row in rows]
        fields = [row.get(b"extra_attributes") for row in rows] if content else []
    else:
        keys, ranks, fields = reply[1 :: 2 + content], reply[2 :: 2 + content], reply[3::3] if content else []
    ranks = [rank or b"nan" for rank in ranks] if None in ranks else ranks
    if ranks and isinstance(ranks[-1], float):
        return keys, np.array(ranks, np.float64), fields
    text = b",".join(ranks).replace(b"#", b"")  # which stands in front of sort keys
    try:
        values = np.array(orjson.loads(b"[%b]" % text), np.float64)  # in a fifth of the time of `float` for each
    except orjson.JSONDecodeError:  # infinity, or not a number
        values = np.fromstring(text, sep=",")
    if metric:  # l2: Redis returns the square; cosine and ip: 1 - product, and float16 lets a cosine exceed 1
        values = 1 / (1 + values) if metric == "l2" else 1 - values
        values = np.fmax(0.0, np.minimum(values, 1.0) if metric == "cosine" else values)  # 0 for what is not a number
    return keys, values, fields


def rows_of(reply: Any) -> list[dict[bytes, bytes]]:
    """Return the rows of an aggregation; a document that was deleted meanwhile is an empty row."""
    if isinstance(reply, dict):
        return [as_dict(row[b"extra_attributes"] or {}) for row in reply[b"results"]]
    return [as_dict(row or []) for row in reply[1:]]


def built_as(info: Any) -> dict[str, Any]:
    """Return how a vector index was built, in the terms of `IndexOptions.attributes`, as far as FT.INFO says it."""
    fields = as_dict(info)[b"attributes"]
    pairs = [field if isinstance(field, dict) else dict(zip(field[::2], field[1::2], strict=False)) for field in fields]
    vector: dict[bytes, Any] = next((field for field in pairs if field.get(b"attribute") == b"vector"), {})
    names = {"algorithm": b"algorithm", "distance_metric": b"distance_metric", "datatype": b"data_type"}
    settings: dict[str, Any] = {term: vector[name].decode().lower() for term, name in names.items() if name in vector}
    return settings | ({"dims": int(vector[b"dim"])} if b"dim" in vector else {})


def is_stale(error: RedisReplyError) -> bool:
    """Tell whether a search failed because the index was dropped, or rebuilt for another model."""
    return error.code in _STALE


def read_cursor(cursor: str, form: re.Pattern[str]) -> tuple[str, ...]:
    """Return the parts of a cursor, or raise `OptionError`."""
    match = form.fullmatch(cursor) if isinstance(cursor, str) else None
    if match is None:
        raise ArgumentError(f"cursor={shown(cursor)}", remedy="pass the next_cursor of the page before, unchanged")
    return match.groups()
