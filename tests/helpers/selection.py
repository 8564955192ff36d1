"""Which of the collected tests run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from zlib import crc32

import pytest


def left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return what only `make nightly` runs.

    What is marked so, all but one value of a parameter that is `in_turn`, and combinations of which no value needs one.
    """
    left = {item for item in items if item.get_closest_marker("nightly")}
    for parameter, marked in _marked(items).items():
        left |= _not_their_turn(marked, parameter)
    functions: dict[tuple[str, object], list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and item not in left:
            face = item.callspec.params.get("face") if item.get_closest_marker("both_faces") else None
            functions[item.nodeid.partition("[")[0], face].append(item)
    for cases in functions.values():
        left |= _combined_already(cases)
    return left


def _combined_already(cases: list[pytest.Function]) -> set[pytest.Item]:
    """Return the cases all of whose values other cases have, too."""
    values = {case: _values(case) for case in cases}
    missing = set().union(*values.values())
    if max(map(len, values.values())) < 2:
        return set()
    chosen: set[pytest.Item] = set()
    while missing:
        best = max(cases, key=lambda case: len(values[case] & missing))
        chosen.add(best)
        missing -= values[best]
    return {case for case in cases if case not in chosen}


def _values(case: pytest.Function) -> set[tuple[object, ...]]:
    """Return the values of a case; those that one `parametrize` gives to several parameters are one value."""
    params = dict(case.callspec.params)
    found: set[tuple[object, ...]] = set()
    for marker in case.iter_markers("parametrize"):
        names = marker.args[0]
        together = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
        found.add(tuple((name, id(params.pop(name))) for name in together if name in params))
    return found | {((name, id(value)),) for name, value in params.items()}


def _marked(items: Iterable[pytest.Item]) -> dict[str, list[pytest.Function]]:
    found: dict[str, list[pytest.Function]] = defaultdict(list)
    for item in items:
        if isinstance(item, pytest.Function) and (marker := item.get_closest_marker("in_turn")):
            (parameter,) = marker.args
            if hasattr(item, "callspec") and parameter in item.callspec.params:
                found[parameter].append(item)
    return found


def _not_their_turn(items: list[pytest.Function], parameter: str) -> set[pytest.Item]:
    """Choose a value for the first case of a function by its name, for the next case the next value, and so on."""
    functions: dict[str, dict[tuple[object, ...], list[pytest.Item]]] = defaultdict(dict)
    for item in items:
        others = tuple((name, id(value)) for name, value in item.callspec.params.items() if name != parameter)
        functions[item.nodeid.partition("[")[0]].setdefault(others, []).append(item)
    left: set[pytest.Item] = set()
    for name, cases in functions.items():
        for at, values in enumerate(cases.values(), crc32(name.encode())):
            left |= {*values} - {values[at % len(values)]}
    return left
