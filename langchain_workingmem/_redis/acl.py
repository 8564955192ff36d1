"""What a Redis user must be allowed to do for a `Memory` and a store of one prefix, as rules for ACL SETUSER.

Scripts run with the rights of whoever calls them, so the rules name what stands in them too. EVAL is among them because
a server that was restarted has forgotten our scripts, and EVALSHA is then repeated with their source. It grants nothing:
whoever may run EVALSHA and load scripts can run any script, and none may do more than the user without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from langchain_workingmem._redis.keys import Keys

_SCRIPTS = ("eval", "evalsha", "time")
_KEYS = ("del", "exists", "rename", "unlink")
_HASHES = ("hdel", "hexists", "hget", "hgetall", "hincrby", "hkeys", "hlen", "hmget", "hset", "hsetnx")
_ORDERS = ("zadd", "zcard", "zcount", "zmscore", "zrange", "zrangestore", "zrank", "zrem", "zremrangebyrank")
_RANGES = ("zintercard", "zremrangebyscore", "zscore", "zunionstore")
_REVISIONS = ("xadd", "xlen", "xrange", "xrevrange")
_EXPIRY = ("persist", "pexpireat", "pexpiretime")
_SEARCHES = ("get", "ft.aggregate", "ft.info", "ft.search")
_CLIENT = ("ping", "client|setinfo")  # what redis-py sends by itself
_COMMANDS = (*_SCRIPTS, *_KEYS, *_HASHES, *_ORDERS, *_RANGES, *_REVISIONS, *_EXPIRY, *_SEARCHES, *_CLIENT)
_INDEXES = ("set", "ft.create", "ft.dropindex")
_DELETION = ("scan",)  # shows the names of all keys of the database
CLUSTER = ("+asking", "+cluster|slots", "+command")  # what its clients need as well


def rules(keys: Keys, *, create_index: bool = True) -> list[str]:
    """Give the rules for a user of this prefix who can do nothing else, in the order in which Redis applies them.

    Keys are named up to the brace of their hash tag: the user of `wm` reaches neither `wmx:...` nor `wm:x:...`. Without
    `create_index` the user attaches to the indexes that another one made: it may not create or drop one, which matters
    because Search before Redis 8 lets whoever creates an index read every key through it. Nor may it delete a resource:
    looking for what is left needs SCAN, which shows the names of all keys of the database.
    """
    tagged = (*keys.of("any").all, *keys.of_resource("any"), *keys.of_item("any"))
    patterns = [
        *(name.partition("{")[0] + "{*" for name in tagged),
        keys.layout,
        keys.threads_index,
        keys.vectors_index,
        keys.vectors_settings,
        keys.items_index,
        keys.item_vectors_index,
        keys.item_vectors_settings,
    ]
    commands = [*_COMMANDS, *((*_INDEXES, *_DELETION) if create_index else ())]
    return [
        *("resetkeys", "resetchannels", "-@all"),
        *(f"~{pattern}" for pattern in patterns),
        *(f"+{command}" for command in commands),
    ]


def set_user(name: str, keys: Keys, *, create_index: bool = True) -> str:
    """Write the command for redis-cli. Redis refuses it until the hash of a password stands in its place."""
    allowed = rules(keys, create_index=create_index)
    return " ".join(("ACL SETUSER", name, "reset on", "#SHA256-OF-THE-PASSWORD", *allowed))
