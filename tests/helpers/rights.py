"""The rules of the Redis users that docs/security.md shows."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "security.md"
RULES: dict[str, str] = {}
for _name, _rules in re.findall(r"^ {4}ACL SETUSER (\S+) (?:reset on #HASH )?(.*)", _PAGE.read_text(), re.MULTILINE):
    RULES[_name] = f"{RULES.get(_name, '')} {_rules}"
CLUSTER = ("+asking", "+cluster|slots", "+command", "+search.clusterinfo")  # a user of a cluster needs these, too


def rules(prefix: str, name: str = "workingmem-admin") -> list[str]:
    """Return the rules of a user for a prefix, in the order in which Redis applies them."""
    return RULES[name].replace("wm:", f"{prefix}:").split()
