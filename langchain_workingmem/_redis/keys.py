"""Names of keys and indexes, the ids inside them, and the members of the sorted sets of a thread.

A key is `<prefix>:<kind>:{<id>}`. Keys of a thread, and those of a user, share a hash tag: they live in one cluster
slot, and one script may touch them all. Ids are percent-encoded in keys and tag fields: no brace ends the hash tag, and
no separator, blank or wildcard matches another tenant's data. A `key_prefix` may begin as another one does, so keys are
compared whole, or up to their brace. No kind below ends with a colon and another kind, as
`x:thread` would: so no two prefixes share a key.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from langchain_workingmem._text.unicode import is_utf8
from langchain_workingmem.errors import IdError, OptionError

MAX_ID_BYTES = 512
FROM_WHERE = "pass {0}=...; in an agent or graph, put {0!r} into the context or config['configurable'] of the run"
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]+")


def check_id(value: object, name: str) -> str:
    """Return the id, or raise `IdError`."""
    if value is None:
        remedy = FROM_WHERE.format(name) if name in {"thread_id", "user_id"} else f"pass {name}=..."
        raise IdError(f"{name} is missing", remedy=remedy)
    if not isinstance(value, str):
        raise IdError(f"{name} is of type {type(value).__name__}", remedy="pass a non-empty string")
    if not value or "\0" in value:
        problem = "not allowed to hold a NUL character" if value else "empty"
        raise IdError(f"{name} is {problem}", remedy="pass another string")
    if len(value) <= MAX_ID_BYTES and value.isascii():
        return value
    if not is_utf8(value):
        problem = f"{name} {value!r} holds a lone surrogate, which UTF-8 cannot carry"
        raise IdError(problem, remedy="pass valid Unicode")
    if (size := len(value.encode())) > MAX_ID_BYTES:
        problem = f"{name} has {size} bytes in UTF-8, the limit is {MAX_ID_BYTES}"
        raise IdError(problem, remedy="use a shorter id or a hash of it")
    return value


@lru_cache(maxsize=4096)  # a turn asks a dozen times, for a few ids
def encode(id: str) -> str:
    """Encode an id for a key or a tag: only letters, digits and `_.-~%` remain."""
    return quote(id, safe="")


@lru_cache(maxsize=4096)
def decode(encoded: str | bytes) -> str:
    """Undo `encode`."""
    return unquote(encoded.decode() if isinstance(encoded, bytes) else encoded)


def hash_tag(key: bytes) -> str:
    """Return the hash tag in a key."""
    return key[key.index(b"{") + 1 : key.index(b"}")].decode()


class ThreadKeys(NamedTuple):
    """The keys of one thread, in the order in which every script takes them."""

    thread: str  # HASH, indexed: owner, title, times, metadata, counters
    order: str  # ZSET: facts of the current messages, by seq
    superseded: str  # ZSET: facts of the others
    messages: str  # HASH: seq -> body
    ids: str  # HASH: message id -> seqs
    media: str  # HASH: <seq>:<n> -> a long string of a message
    dropped: str  # ZSET: facts of messages whose vectors have still to be deleted
    vector: str  # prefix of the vectors: seq, chunk, length and author follow
    rows: str  # HASH: derived rows
    memory: str  # HASH: working memory of the thread
    revisions: str  # STREAM: its last revisions


class UserKeys(NamedTuple):
    """The keys of one user beside its threads, wings' data too: deletion and export walk them."""

    tombstone: str  # STRING
    memory: str  # HASH: working memory
    revisions: str  # STREAM: its last revisions
    usage: str  # HASH: what models do for it in the background
    observations: str  # ZSET: its threads that have such rows, by the time of what their newest rows tell of
    keeping: str  # ZSET: likewise
    paths: str  # ZSET: its files
    texts: str  # HASH
    notes: str  # HASH
    done: str  # HASH: calls done

    @property
    def of_memory(self) -> tuple[str, str, str]:
        """Return the tombstone, and the keys of its working memory."""
        return self.tombstone, self.memory, self.revisions

    @property
    def files(self) -> tuple[str, ...]:
        """Return the tombstone, and the keys of its files."""
        return (self.tombstone, *self[-4:])


_THREAD_KINDS = (*ThreadKeys._fields[:-2], "memory:t", "revisions:t")
_OWN, _FILES = UserKeys._fields[1:-4], UserKeys._fields[-4:]
_USER_KINDS = ("tombstone", *(f"{name}:u" for name in _OWN), *(f"files:{name}:u" for name in _FILES))


class Keys:
    """Every key and index name under one prefix; `docs/storage-layout.md` describes them."""

    def __init__(self, prefix: str = "wm") -> None:
        if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
            raise OptionError(f"key_prefix {prefix!r}", remedy="use letters, digits and `_ . : -` only")
        self.prefix = prefix
        self.layout = f"{prefix}:layout"  # HASH: the version of the storage layout, and the secret of marks
        self.threads_index = f"{prefix}:threads"
        self.vectors_index = f"{prefix}:vectors"
        self.vectors_settings = f"{prefix}:vectors:settings"  # STRING: the options of that index (JSON)
        self.vectors_floor = f"{prefix}:vectors:floor"  # STRING: which similarities of its model tell something (JSON)
        self.items_index = f"{prefix}:items"
        self.item_vectors_index = f"{prefix}:item-vectors"
        self.item_vectors_settings = f"{prefix}:item-vectors:settings"
        # An index takes every key that starts with its prefix. The brace keeps out `<prefix>:thread` as a key_prefix.
        self.thread_prefix = f"{prefix}:thread:{{"
        self.vector_prefix = f"{prefix}:vector:{{"
        self.dropped_prefix = f"{prefix}:dropped:{{"
        self.item_prefix = f"{prefix}:item:{{"
        self.item_vector_prefix = f"{prefix}:item-vector:{{"
        self.of = lru_cache(maxsize=1024)(self._of)  # a turn asks several times
        self.of_user = lru_cache(maxsize=1024)(self._of_user)

    def _name(self, kind: str, id: str) -> str:
        return f"{self.prefix}:{kind}:{{{encode(id)}}}"

    def _of(self, thread_id: str) -> ThreadKeys:
        names = {kind: self._name(kind, thread_id) for kind in _THREAD_KINDS}
        return ThreadKeys(*{**names, "vector": f"{names['vector']}:"}.values())

    def _of_user(self, user_id: str) -> UserKeys:
        return UserKeys(*(self._name(kind, user_id) for kind in _USER_KINDS))

    def rows_of_user(self, user_id: str, kind: str) -> str:
        """Name the threads of a user that have rows of a kind (ZSET, by the time of what their newest rows tell of)."""
        return self._name(f"{kind}:u", user_id)

    def of_item(self, digest: str) -> tuple[str, str]:
        """Name the key of a store item (HASH), and the prefix of its vectors after the first."""
        return f"{self.item_prefix}{digest}}}", f"{self.item_vector_prefix}{digest}}}:"

    def thread_of(self, key: bytes) -> str:
        """Return the thread id in a key of that thread."""
        return decode(hash_tag(key))


def merge_tombstone(into: str) -> str:
    """Return how the tombstone of a user begins that is being merged into another one; an id of the merge follows."""
    return f"merge/{encode(into)}/"


MAX_NAME = 40  # characters of an author's name
THE_USER = "!"  # the author of a user's messages without a name; no name is encoded like this


@lru_cache(maxsize=1024)  # the results of a tool all have its name
def author_tag(name: str, role: str = "") -> str:
    """Return an author as it stands in the keys of vectors: lower case, encoded; THE_USER for a user without a name."""
    if name := name.strip().lower()[:MAX_NAME]:
        return encode(name)
    return THE_USER if role == "human" else ""


PROGRAM, LIST, IN_FRONT = "", "l", "b"  # who saved a message; IN_FRONT: of the first question of its thread, by a list


class Facts(NamedTuple):
    """A stored message without its body. docs/storage-layout.md has each part."""

    seq: int
    digest: str  # q, a or as, a digest of what was said, and ! where a provider has refused it; empty: tool traffic
    tokens: int  # of the message, with its tool calls
    total_tokens: int  # of all that was said in the thread up to it
    writer: str  # PROGRAM, LIST, IN_FRONT, or s<seq>: a checkpointer, whose state began at that seq
    vectors: str  # <settings>/<chunks>/<length>/<author>, empty without
    id: str
    text: str  # as it stands in the set
    is_current: bool = True

    @classmethod
    def read(cls, text: str, *, is_current: bool = True) -> Facts:
        """Read a member."""
        seq, digest, tokens, total_tokens, writer, vectors, id = text.split(":", 6)
        return cls(int(seq), digest, int(tokens), int(total_tokens), writer, vectors, id, text, is_current)

    @property
    def is_refused(self) -> bool:
        """Tell whether a provider has refused the message, so that no model is shown it."""
        return self.digest.endswith("!")

    @property
    def spoken(self) -> str:
        """Return the digest by which a list is compared, without the sign of a refusal; empty for all but talk."""
        return "" if self.is_structured else self.digest.rstrip("!")

    @property
    def is_from_program(self) -> bool:
        """Tell whether a program has appended it, outside of a turn."""
        return self.writer == PROGRAM

    @property
    def is_structured(self) -> bool:
        """Tell whether the message is a structured answer."""
        return self.digest.startswith("as")

    @property
    def settings(self) -> str:
        """Return the digest of the settings of its vectors, empty without vectors."""
        return self.vectors.partition("/")[0]
