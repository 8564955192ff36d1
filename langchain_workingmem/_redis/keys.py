"""Names of keys and indexes, and the ids inside them.

A thread's keys share the hash tag `{thread}`, so they live in one cluster slot and one script may touch them all.
Ids are percent-encoded in keys and in tag fields, so a brace cannot end the hash tag, and a separator, a trailing space
or a wildcard cannot match the data of another tenant.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote

from langchain_workingmem.errors import IdError, OptionError

MAX_ID_BYTES = 512
FROM_WHERE = "pass {0}=..., or put {0!r} into the context or the config['configurable'] of the run"
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]+")
# What a user may have beside threads and a tombstone, also of wings: deletion takes them all.
OF_USER = ("memory", "revisions", "usage", "observations", "keeping")
FILES_OF_USER = ("files:paths", "files:texts", "files:notes", "files:done")


def check_id(value: object, name: str) -> str:
    """Return the id, or raise `IdError`."""
    if not isinstance(value, str):
        if value is None:
            from_run = name in {"thread_id", "user_id"}
            raise IdError(f"{name} is missing", remedy=FROM_WHERE.format(name) if from_run else f"pass {name}=...")
        raise IdError(f"{name} is of type {type(value).__name__}", remedy="pass a non-empty string")
    if not value or "\0" in value:
        problem = "not allowed to hold a NUL character" if value else "empty"
        raise IdError(f"{name} is {problem}", remedy="pass another string")
    if len(value) <= MAX_ID_BYTES and value.isascii():
        return value
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise IdError(
            f"{name} {value!r} holds a lone surrogate, which UTF-8 cannot carry", remedy="pass valid Unicode"
        ) from None
    if size > MAX_ID_BYTES:
        raise IdError(
            f"{name} has {size} bytes in UTF-8, the limit is {MAX_ID_BYTES}", remedy="use a shorter id or a hash of it"
        )
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
    """The keys of one thread, all in one cluster slot, in the order in which every script takes them."""

    thread: str  # HASH, indexed: owner, title, times, metadata, counters
    order: str  # ZSET: facts of the current messages, by seq
    superseded: str  # ZSET: facts of the others
    messages: str  # HASH: seq -> body
    ids: str  # HASH: message id -> seqs
    media: str  # HASH: <seq>:<n> -> a long string of a message
    dropped: str  # ZSET: facts of messages whose vectors have still to be deleted
    vector: str  # prefix of the vectors: seq, chunk and size of the message follow
    rows: str  # HASH: derived rows
    memory: str  # HASH: working memory of the thread
    revisions: str  # STREAM: its last revisions


@lru_cache(maxsize=1024)
def _keys_of(prefix: str, thread_id: str) -> ThreadKeys:
    tag = f"{{{encode(thread_id)}}}"
    kinds = ("thread", "order", "superseded", "messages", "ids", "media", "dropped")
    names = [f"{prefix}:{kind}:{tag}" for kind in kinds]
    names += [
        f"{prefix}:vector:{tag}:",
        f"{prefix}:rows:{tag}",
        f"{prefix}:memory:t:{tag}",
        f"{prefix}:revisions:t:{tag}",
    ]
    return ThreadKeys(*names)


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
        self.vectors_scale = f"{prefix}:vectors:scale"  # STRING: which similarities of its model tell something (JSON)
        self.items_index = f"{prefix}:items"
        self.item_vectors_index = f"{prefix}:item-vectors"
        self.item_vectors_settings = f"{prefix}:item-vectors:settings"
        # An index takes every key that starts with its prefix. The brace keeps out the keys of another Memory whose
        # key_prefix begins with ours.
        self.thread_prefix = f"{prefix}:thread:{{"
        self.vector_prefix = f"{prefix}:vector:{{"
        self.dropped_prefix = f"{prefix}:dropped:{{"
        self.item_prefix = f"{prefix}:item:{{"
        self.item_vector_prefix = f"{prefix}:item-vector:{{"

    def of(self, thread_id: str) -> ThreadKeys:
        """Name the keys of a thread."""
        return _keys_of(self.prefix, thread_id)

    def of_user(self, user_id: str) -> tuple[str, str, str]:
        """Name the keys of a user: its tombstone (STRING), working memory (HASH) and revisions (STREAM)."""
        tag = f"{{{encode(user_id)}}}"
        return f"{self.prefix}:tombstone:{tag}", f"{self.prefix}:memory:u:{tag}", f"{self.prefix}:revisions:u:{tag}"

    def rows_of_user(self, user_id: str, kind: str) -> str:
        """Name the threads of a user that have rows of a kind (ZSET, by the time of what their newest rows tell of)."""
        return f"{self.prefix}:{kind}:u:{{{encode(user_id)}}}"

    def usage_of_user(self, user_id: str) -> tuple[str, str]:
        """Name the tombstone of a user, and the counters of what models do for it in the background (HASH)."""
        tag = f"{{{encode(user_id)}}}"
        return f"{self.prefix}:tombstone:{tag}", f"{self.prefix}:usage:u:{tag}"

    def files_of_user(self, user_id: str) -> tuple[str, str, str, str, str]:
        """Name the tombstone of a user, and of its files the paths (ZSET), texts, notes and calls that are done (HASHes)."""
        paths, texts, notes, done = self._named(user_id, FILES_OF_USER)
        return self.of_user(user_id)[0], paths, texts, notes, done

    def all_of_user(self, user_id: str) -> list[str]:
        """Name every key that a user may have, but its tombstone."""
        return self._named(user_id, OF_USER + FILES_OF_USER)

    def _named(self, user_id: str, kinds: tuple[str, ...]) -> list[str]:
        return [f"{self.prefix}:{kind}:u:{{{encode(user_id)}}}" for kind in kinds]

    def of_item(self, digest: str) -> tuple[str, str]:
        """Name the key of a store item (HASH), and the prefix of its vectors after the first."""
        return f"{self.item_prefix}{digest}}}", f"{self.item_vector_prefix}{digest}}}:"

    def thread_of(self, key: bytes) -> str:
        """Return the thread id in a key of that thread."""
        return decode(hash_tag(key))


def merge_mark(into: str) -> str:
    """Return how the tombstone of a user begins that is being merged into another one; an id of the merge follows."""
    return f"merge/{encode(into)}/"


MAX_NAME = 40  # characters of an author's name
THE_USER = "!"  # the author of a user's messages without a name; no name is encoded like this


def author_tag(name: str, role: str = "") -> str:
    """Return an author as it stands in the keys of vectors: lower case, encoded; THE_USER for a user without a name."""
    if name := name.strip().lower()[:MAX_NAME]:
        return _encode_author(name)
    return THE_USER if role == "human" else ""


@lru_cache(maxsize=1024)  # the results of a tool all have its name
def _encode_author(name: str) -> str:
    return encode(name)
