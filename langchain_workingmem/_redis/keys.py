"""Names of keys and indexes, and the ids inside them.

A thread's keys share the hash tag `{thread}`, so they live in one cluster slot and one script may touch them all.
Ids are percent-encoded in keys and in tag fields: a brace cannot end the hash tag early, a separator, a trailing
space or a wildcard cannot reach another tenant, and one encoding serves both places.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from langchain_workingmem.errors import IdError, OptionError

MAX_ID_BYTES = 512
FROM_WHERE = "pass {0}=..., or put {0!r} into the context or the config['configurable'] of the run"
_PREFIX = re.compile(r"[A-Za-z0-9_.:-]+")


def check_id(value: object, name: str) -> str:
    """Return a usable id, or raise `IdError` that says what is wrong with it."""
    if not isinstance(value, str):
        if value is None:
            raise IdError(f"{name} is missing", remedy=f"{FROM_WHERE.format(name)}")
        raise IdError(f"{name} is of type {type(value).__name__}", remedy="pass a non-empty string")
    if not value or "\0" in value:
        raise IdError(
            f"{name} is {('empty' if not value else 'not allowed to hold a NUL character')}",
            remedy="pass another string",
        )
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


def encode(id: str) -> str:
    """Encode an id for a key or a tag: only letters, digits and `_.-~%` remain."""
    return quote(id, safe="")


def decode(encoded: str | bytes) -> str:
    """Give back the id that was encoded."""
    return unquote(encoded.decode() if isinstance(encoded, bytes) else encoded)


def hash_tag(key: bytes) -> str:
    """Read the hash tag out of a key."""
    return key[key.index(b"{") + 1 : key.index(b"}")].decode()


@dataclass(frozen=True, slots=True)
class ThreadKeys:
    """The keys of one thread, all in one cluster slot."""

    thread: str  # HASH, indexed: owner, title, times, metadata
    order: str  # ZSET: message id -> sequence number, of the current branch
    messages: str  # HASH: message id -> JSON
    vector: str  # prefix of the vector documents: + sequence number : chunk : tokens of the message
    said: str  # ZSET: what was said on the current branch, as the history counts it
    answers: str  # ZSET: the answers among it
    superseded: str  # ZSET: message id -> sequence number, of what the conversation has left behind
    aliases: str  # ZSET: other id of a message -> its sequence number
    trash: str  # HASH: what was deleted and still has vectors; its parts have this name and more behind it
    memory: str  # HASH: working memory of the thread
    revisions: str  # STREAM: its last revisions

    @property
    def all(self) -> tuple[str, ...]:
        """Return the keys in the order that every script expects."""
        return (
            self.thread,
            self.order,
            self.messages,
            self.vector,
            self.said,
            self.answers,
            self.superseded,
            self.aliases,
            self.trash,
            self.memory,
            self.revisions,
        )


@dataclass(frozen=True, slots=True)
class Keys:
    """Every key and index name under one prefix; `docs/storage-layout.md` is the contract."""

    prefix: str = "wm"

    def __post_init__(self) -> None:
        if not isinstance(self.prefix, str) or not _PREFIX.fullmatch(self.prefix):
            raise OptionError(f"key_prefix {self.prefix!r}", remedy="use letters, digits and `_ . : -` only")

    def of(self, thread_id: str) -> ThreadKeys:
        """Name the keys of a thread."""
        tag = f"{{{encode(thread_id)}}}"
        return ThreadKeys(
            thread=f"{self.thread_prefix[:-1]}{tag}",
            order=f"{self.prefix}:order:{tag}",
            messages=f"{self.prefix}:messages:{tag}",
            vector=f"{self.vector_prefix[:-1]}{tag}:",
            said=f"{self.prefix}:said:{tag}",
            answers=f"{self.prefix}:answers:{tag}",
            superseded=f"{self.prefix}:superseded:{tag}",
            aliases=f"{self.prefix}:aliases:{tag}",
            trash=f"{self.trash_prefix[:-1]}{tag}",
            memory=f"{self.prefix}:memory:t:{tag}",
            revisions=f"{self.prefix}:revisions:t:{tag}",
        )

    def of_resource(self, resource_id: str) -> tuple[str, str, str]:
        """Name the keys of a resource: its tombstone (STRING), working memory (HASH) and revisions (STREAM)."""
        tag = f"{{{encode(resource_id)}}}"
        return f"{self.prefix}:tombstone:{tag}", f"{self.prefix}:memory:r:{tag}", f"{self.prefix}:revisions:r:{tag}"

    @property
    def layout(self) -> str:
        """Return the key of the version of the storage layout."""
        return f"{self.prefix}:layout"

    @property
    def threads_index(self) -> str:
        """Name the index of threads."""
        return f"{self.prefix}:threads"

    @property
    def vectors_index(self) -> str:
        """Name the index of vectors."""
        return f"{self.prefix}:vectors"

    @property
    def vectors_settings(self) -> str:
        """Name the STRING that says what the vector index was built for (JSON)."""
        return f"{self.prefix}:vectors:settings"

    @property
    def items_index(self) -> str:
        """Name the index of store items."""
        return f"{self.prefix}:items"

    @property
    def item_vectors_index(self) -> str:
        """Name the index of the vectors of store items."""
        return f"{self.prefix}:item-vectors"

    @property
    def item_vectors_settings(self) -> str:
        """Name the STRING that says what that index was built for (JSON)."""
        return f"{self.prefix}:item-vectors:settings"

    # An index takes every key that starts with its prefix. The brace is part of it, so that a second Memory
    # whose key_prefix happens to extend ours cannot fall into our index.
    @property
    def thread_prefix(self) -> str:
        """Give the prefix of thread documents."""
        return f"{self.prefix}:thread:{{"

    @property
    def vector_prefix(self) -> str:
        """Give the prefix of vector documents."""
        return f"{self.prefix}:vector:{{"

    @property
    def trash_prefix(self) -> str:
        """Give the prefix of what was deleted and still has vectors."""
        return f"{self.prefix}:trash:{{"

    @property
    def item_prefix(self) -> str:
        """Give the prefix of store items."""
        return f"{self.prefix}:item:{{"

    @property
    def item_vector_prefix(self) -> str:
        """Give the prefix of the further vectors of store items."""
        return f"{self.prefix}:item-vector:{{"

    def of_item(self, digest: str) -> tuple[str, str]:
        """Name the keys of a store item: HASH, and the prefix of its vectors behind the first."""
        return f"{self.item_prefix}{digest}}}", f"{self.item_vector_prefix}{digest}}}:"

    def thread_of(self, key: bytes) -> str:
        """Read the thread id out of a key of that thread."""
        return decode(hash_tag(key))


MAX_NAME = 40  # characters that are told apart


def author_tag(name: str) -> str:
    """Write an author into the key of a vector document: lower case, encoded."""
    return encode(name.strip().lower()[:MAX_NAME])
