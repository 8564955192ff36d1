"""What a warm call does stays what it was, counted: bytes, commands, lines of scripts, function calls; no machine makes it more.

Step by step within 3 % of the table, each change of cost is decided by somebody. After a change that is wanted, or a saving:
`python -m tests.house.budget` prints the table as it is now; the commit says what it buys.
"""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.house.budget import VERSIONS, Counts

# of one call: bytes sent, bytes received, commands, lines of the scripts that are called, calls of functions of the package, of all
MEASURED = "2026-11-28"
WITH = "redis 8.1.0, langchain-core 1.8.3"
BUDGET = {
    "context, semantic": (2_701.8, 20_089.4, 28.8, 825.4, 822.8, 898.8),
    "context, hybrid": (2_849.8, 30_128.4, 23.8, 728.4, 817, 967.6),
    "context, default options": (2_841.6, 28_107, 24.8, 728.4, 793.4, 889),
    "acontext, hybrid": (2_849.8, 30_128.4, 23.8, 728.4, 826, 925.6),
    "save_turn": (3_223.2, 86, 16, 513, 170, 190.2),
    "append of 100": (137_626.2, 1_462, 117, 513, 3_426, 3_734.2),
    "files.write": (677, 80, 18, 189, 57, 65.2),
    "files.edit": (379, 80, 18, 189, 56, 62.2),
    "files.read": (242, 3_358, 3, 121, 51, 55.2),
    "files.list of 100": (114, 6_807, 1, 0, 140, 143.2),
    "files.glob of 100": (73, 6_807, 1, 0, 139, 142.2),
}
ROOM = 0.03


def changes(operation: str, before: Counts, after: Counts) -> list[str]:
    """Name each count that left its room; calls of others count with the versions of the table only."""
    return [
        f"{operation}, {name.replace('_', ' ')}: {new:,.10g} instead of {old:,.10g} ({new / old - 1:+.1%})"
        for name, old, new in zip(Counts._fields, before, after, strict=True)
        if abs(new - old) > ROOM * old and (name != "all_calls" or VERSIONS == WITH)
    ]


def test_warm_calls_keep_within_their_budget() -> None:
    # in a process of its own: here others watch what is called
    command = [sys.executable, "-m", "tests.house.budget"]
    table = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    now = ast.literal_eval(table.partition("BUDGET = ")[2])
    assert now.keys() == BUDGET.keys()
    found = [change for name in now for change in changes(name, Counts(*BUDGET[name]), Counts(*now[name]))]
    assert not found, "\n".join([f"since {MEASURED}:", *found, "If all of that is wanted, the table is now:", table])


def test_a_change_is_named_with_its_size() -> None:
    before = Counts(1000, 100, 10, 100, 100, 100)
    assert not changes("save", before, Counts(1030, 97, 10, 100, 103, 100))
    assert changes("save", before, Counts(1031, 100, 9, 100, 100, 100)) == [
        "save, sent: 1,031 instead of 1,000 (+3.1%)",
        "save, commands: 9 instead of 10 (-10.0%)",
    ]
