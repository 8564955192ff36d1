"""One word for a thing: the words of docs/design.md exist in the code, and retired words do not come back."""

from __future__ import annotations

import io
import re
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_workingmem"
GLOSSARY = (ROOT / "docs/design.md").read_text().split("\n## Words\n")[1].split("\n## ")[0]
# Whole identifiers, and what is said instead.
RETIRED = {
    "Space": "MemoryState",
    "space": "state",
    "Shelf": "StoreState",
    "shelf": "state",
    "Copies": "ResentMessages",
    "Wanted": "MessageSelection",
    "Sight": "ShownToModel",
    "belongings": "items of a user",
    "agreed": "register_index_settings",
    "created": "ensure_index",
    "measured": "probe_dimensions",
    "renewed": "refresh",
    "once": "at_most_once",
    "stranger": "wrong_owner",
    "hold": "expire_vector",
    "mark": "index_digest, deletion_id",
    "marks": "claimed, digests",
    "place": "position, path, key, scope_key",
    "places": "positions, paths, patterns",
    "heir": "new owner",
    "behind": "after",
    "valid": "provider_valid",
    "history_window": "history_slice",
}


@cache
def identifiers(path: Path) -> frozenset[str]:
    text = path.read_text()
    if path.suffix == ".py":
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        return frozenset(token.string for token in tokens if token.type == tokenize.NAME)
    code = re.sub(r"--.*|'[^'\n]*'|\"[^\"\n]*\"", "", text)
    return frozenset(re.findall(r"[A-Za-z_]\w*", code))


FILES = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua")])


def test_no_retired_word_is_an_identifier() -> None:
    assert [
        f"{path}: for {word} say {RETIRED[word]}"
        for path in FILES
        for word in identifiers(path) & RETIRED.keys()
        if (word, path.relative_to(PACKAGE).parts[0]) != ("mark", "testing")  # of pytest
    ] == []


def test_the_glossary_is_short_and_its_names_exist() -> None:
    rows = re.findall(r"^\| (?!word |---)(.+?) \| (.+?) \|$", GLOSSARY, re.MULTILINE)
    assert 20 <= len(rows) <= 40
    known = frozenset[str]().union(*map(identifiers, FILES))
    for _, meaning in rows:
        for name in re.findall(r"`(\w+)`", meaning):
            assert name in known, name
