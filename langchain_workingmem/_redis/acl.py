"""The rights that a Redis user needs for a `Memory` and a store of one prefix, as rules for ACL SETUSER.

A script runs with the rights of its caller, so the rules include the commands inside the scripts, and EVAL grants
nothing beyond them. It sends a script that a restarted server no longer has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem._redis.keys import values_key

if TYPE_CHECKING:
    from langchain_workingmem._redis.keys import Keys

_SCRIPTS = ("eval", "evalsha", "time")
_KEYS = ("del", "exists", "rename", "unlink")
_HASHES = (
    "hdel",
    "hexists",
    "hget",
    "hgetall",
    "hincrby",
    "hkeys",
    "hlen",
    "hmget",
    "hscan",
    "hset",
    "hsetnx",
)
_ORDERS = ("zadd", "zcard", "zcount", "zmscore", "zrange", "zrangestore", "zrem", "zremrangebyrank")
_RANGES = ("zintercard", "zremrangebyscore", "zscore", "zunionstore")
_REVISIONS = ("xadd", "xlen", "xrange", "xrevrange")
_EXPIRY = ("hpexpire", "persist", "pexpireat", "pexpiretime")
_SEARCHES = ("get", "ft.aggregate", "ft.info", "ft.search")
_CLIENT = ("ping", "client|setinfo")  # redis-py sends these
_COMMANDS = (*_SCRIPTS, *_KEYS, *_HASHES, *_ORDERS, *_RANGES, *_REVISIONS, *_EXPIRY, *_SEARCHES, *_CLIENT)
_INDEXES = ("set", "ft.create", "ft.dropindex")
_DELETION = ("scan",)  # it shows the names of all keys in the database
CLUSTER = ("+asking", "+cluster|slots", "+command", "+search.clusterinfo")  # a user of a cluster needs these, too


def rules(keys: Keys, *, create_index: bool = True) -> list[str]:
    """Return the rules for a user of this prefix who can do nothing else, in the order in which Redis applies them.

    Key patterns include the brace of the hash tag: the user of `wm` reaches neither `wmx:...` nor `wm:x:...`. Without
    `create_index` the user cannot create or drop an index: before Redis 8, a user who may create an index can read
    every key through it. It cannot delete or merge a user either, which needs SCAN.
    """
    memories = (values_key(keys.of("any").memory), values_key(keys.of_user("any")[1]))
    tagged = (
        *memories,
        *keys.of("any"),
        *keys.of_user("any"),
        *keys.usage_of_user("any"),
        *keys.log_of_user("any"),
        *keys.files_of_user("any"),
        *keys.of_item("any"),
    )
    patterns = [
        *(name.partition("{")[0] + "{*" for name in tagged),
        keys.layout,
        keys.threads_index,
        keys.vectors_index,
        keys.vectors_settings,
        keys.vectors_scale,
        keys.items_index,
        keys.item_vectors_index,
        keys.item_vectors_settings,
    ]
    commands = [*_COMMANDS, *((*_INDEXES, *_DELETION) if create_index else ())]
    return [
        *("resetkeys", "resetchannels", "-@all"),
        *dict.fromkeys(f"~{pattern}" for pattern in patterns),  # the tombstone is among the keys of each room
        *(f"+{command}" for command in commands),
    ]


def set_user(name: str, keys: Keys, *, create_index: bool = True) -> str:
    """Return the command for redis-cli, with a placeholder for the hash of the password."""
    return f"ACL SETUSER {name} reset on #SHA256-OF-THE-PASSWORD {' '.join(rules(keys, create_index=create_index))}"
