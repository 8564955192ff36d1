"""Whoever writes a text decides how long memory works on it, so twice the text may take twice as long and no more."""

from __future__ import annotations

import gc
import importlib
import inspect
import pkgutil
import random
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from math import log
from time import thread_time_ns
from types import FrameType, ModuleType

import pytest

import langchain_workingmem._documents
import langchain_workingmem._text
from langchain_workingmem._redis import queries as search
from langchain_workingmem.items import filters
from langchain_workingmem.items import searches as item_searches
from langchain_workingmem.keeping import bounds, checking, claims, operations, timeline, values
from langchain_workingmem.keeping import fields as keeping_fields
from langchain_workingmem.keeping import lines as keeping_lines
from langchain_workingmem.keeping.keeper import answers as keeper_answers
from langchain_workingmem.keeping.keeper import prompts as keeper_prompts
from langchain_workingmem.observations import answers as observer_answers
from langchain_workingmem.observations import prompts
from langchain_workingmem.recall import authors, hits, outdated, reranking, shown, times
from langchain_workingmem.working_memory import answers, prompt
from tests.helpers.examples import sample
from tests.house import growth_recipes
from tests.house.growth_recipes import RECIPES, WITHOUT_TEXT, Recipe

WORDS = ("a", "dog", "of", "Nougat", "Grüße", "漢字", "_", "42", "x" * 50, "\n", "- **Location**:", '"', "[", "🐕")

CHARACTERS = (*range(1, 0x3000), *range(0x1F300, 0x1F6FF), *[ord("\n")] * 500)


def random_words(size: int) -> str:
    return " ".join(random.Random(size).choices(WORDS, k=size // 2))[:size]


def random_characters(size: int) -> str:
    return "".join(map(chr, random.Random(size).choices(CHARACTERS, k=size)))


def repeated(unit: str) -> Callable[[int], str]:
    return lambda size: (unit * (size // len(unit) + 1))[:size]


TEXTS: dict[str, Callable[[int], str]] = {
    "random words": random_words,
    "random characters": random_characters,
    "order numbers": repeated("A-1.2 "),
    "underscores": repeated("_"),
    "quotes": repeated('"'),
    "escaped quotes": lambda size: '"' + repeated('\\"')(size - 1),
    "brackets": repeated("["),
    "brackets in pairs": repeated("{}"),
    "backslashes": repeated("\\"),
    "spaces": repeated(" "),
    "spaces in a text": lambda size: f"a{' ' * (size - 2)}b",
    "combining marks": repeated("\u0301\u0316"),
    "zero width": repeated("\u200b\u200d"),
    "tags": repeated("\U000e0041"),
    "variation selectors": repeated("\ufe0f\U000e0100"),
    "families": repeated("👩\u200d👩\u200d👧\u200d"),
    "flags": repeated("\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"),
    "Chinese": repeated("漢字"),
    "one long line": repeated("a"),
    "short words": repeated("a b "),
    "blank lines": repeated("\n"),
    "two lines in turn": repeated("a\nb\n"),
    "a hundred lines in turn": repeated("".join(f"{at}\n" for at in range(100))),
    "many lines": lambda size: "".join(f"{at}\n" for at in range(size // 4))[:size],
    "lines of a template": repeated("- **Location**:\n"),
    "dots": repeated("a."),
    "escapes": repeated("&amp;lt;"),
    "thoughts": repeated("<think>"),
    "digits": repeated("1"),
    "lone surrogates": repeated("\ud800"),
}

SMALL = 500
LARGE = 32_000  # a text of this size that takes no time is answered
BRIEF = 200_000  # nanoseconds from which on a measurement means something
TIMES = 4  # as long is the other text
MOST = 1.5  # the power of its length to which the time of a text grows: a square is 2
TRIES = 6  # other processes make one slower now and then


def modules() -> Iterator[ModuleType]:
    for room in (langchain_workingmem._text, langchain_workingmem._documents):
        for found in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            if found.name not in {
                "langchain_workingmem._text.said",
                "langchain_workingmem._text.copies",
                "langchain_workingmem._documents.messages",
            }:  # of messages
                yield importlib.import_module(found.name)
    yield from (answers, authors, filters, hits, item_searches, observer_answers, prompt, prompts)
    yield from (keeper_answers, keeper_prompts)
    yield from (bounds, checking, claims, keeping_fields, keeping_lines, operations, timeline, values)
    yield from (outdated, reranking, search, shown, times)


def functions(module: ModuleType) -> Iterator[str]:
    """Name the functions and methods that a module defines, private ones too, but for protocols and constructors."""
    short = module.__name__.removeprefix("langchain_workingmem.")
    for found in vars(module).values():
        if getattr(found, "__module__", None) != module.__name__ or getattr(found, "_is_protocol", False):
            continue
        methods = vars(found).values() if inspect.isclass(found) else [found]
        for one in methods:
            function = inspect.unwrap(getattr(one, "__func__", one))
            is_ours = inspect.isfunction(function) and function.__code__.co_filename == module.__file__
            if is_ours and not function.__name__.startswith("__"):
                yield f"{short}.{function.__qualname__}"


def is_public(name: str) -> bool:
    return not any(part.startswith("_") for part in name.split("."))


def reached() -> set[str]:
    """Name the functions that the recipes run through."""
    files = {module.__file__: module.__name__.removeprefix("langchain_workingmem.") for module in modules()}
    found = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (short := files.get(frame.f_code.co_filename)):
            found.add(f"{short}.{frame.f_code.co_qualname}")

    for one in [one for module in (*modules(), growth_recipes) for one in vars(module).values()]:
        if hasattr(one, "cache_clear"):
            one.cache_clear()  # what another test has asked for is not called again
        for name in [name for name, made in vars(type(one)).items() if isinstance(made, cached_property)]:
            vars(one).pop(name, None)
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for recipe in RECIPES.values():
            for kind in TEXTS:
                recipe(text_of(kind, SMALL))
    finally:
        sys.setprofile(before)
    return found


def test_every_function_is_measured() -> None:
    found = {name for module in modules() for name in functions(module)}
    assert RECIPES.keys() | WITHOUT_TEXT <= found, "no such functions"
    public = set(filter(is_public, found))
    assert public - RECIPES.keys() - WITHOUT_TEXT == set(), "tests/house/growth_recipes.py says how each is called"
    assert found - public - reached() - WITHOUT_TEXT == set(), "no recipe runs through them"


def nanoseconds(recipe: Recipe, text: str) -> int:
    began = thread_time_ns()  # of this thread: other jobs of the machine do not count
    recipe(text)
    return thread_time_ns() - began


def kinds_for(name: str) -> list[str]:
    """Choose a text for a function, another one for the next; `make nightly` takes all."""
    return sample(TEXTS, 1, offset=list(RECIPES).index(name))


@cache
def text_of(kind: str, size: int) -> str:
    return TEXTS[kind](size)


def growth(recipe: Recipe, kind: str) -> float:
    """Return the power of its length to which the time of a text grows; 0 for what is too fast to tell."""
    size = SMALL
    while (spent := nanoseconds(recipe, text_of(kind, size))) < BRIEF and size < LARGE:
        size *= 4
    if spent < BRIEF:
        return 0
    power = log(nanoseconds(recipe, text_of(kind, TIMES * size)) / spent, TIMES)
    for _ in range(TRIES):
        if power <= MOST:
            break
        # The C library gets large blocks from the system each time, page by page, and keeps smaller ones. So the longer text
        # may take three times as long for each character, at every size. Far apart, that is little beside a square.
        short, long, times = text_of(kind, size), text_of(kind, TIMES**2 * size), TIMES**2
        power = log(
            min(nanoseconds(recipe, long) for _ in range(2)) / min(nanoseconds(recipe, short) for _ in range(3)), times
        )
    return power


@pytest.mark.parametrize("name", RECIPES)
def test_time_grows_with_the_text_and_not_with_its_square(name: str) -> None:
    gc.disable()
    try:
        powers = {kind: growth(RECIPES[name], kind) for kind in kinds_for(name)}
    finally:
        gc.enable()
    assert {kind: round(power, 2) for kind, power in powers.items() if power > MOST} == {}


def test_a_square_is_noticed_and_no_blocks_from_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.house.test_growth.nanoseconds", lambda recipe, text: recipe(text))
    assert growth(lambda text: len(text) ** 2, "one long line") == pytest.approx(2)
    assert 1 < growth(lambda text: 30 * len(text) * (1 if len(text) < LARGE else 3), "one long line") < MOST


SIZE = 2_000  # characters
FACTOR = 100  # bytes for each
# What keeps the lines or the fields of two texts, or the parts of emoji: each is an object of 50 bytes and more, however short.
MORE = dict.fromkeys(
    (
        "recall.authors.named",  # is given 4,000 characters at most
        "recall.authors.without",  # likewise
        "_documents.metadata.labels_of",
        "working_memory.answers.describe_change",
        "_documents.diffs.changes",
        "_documents.filters.Filter.of",
        "_documents.formats.JsonFormat.absent",
        "_documents.formats.JsonFormat.apply",
        "_documents.formats.JsonFormat.replace",
        "_documents.lines.matches",
        "_documents.lines.unified",
        "_text.rendering.recalled_block",
        "working_memory.prompt.render_working_memory",
        "_documents.schemas.shape",
        "_documents.threeway.merge_fields",
        "_documents.threeway.merge_text",
        "_text.unicode.stored_quote",
        "observations.answers.read_answer",  # zlib takes 300 kB for a text of any size
        "observations.prompts.observer_messages",
        "observations.prompts.shown_messages",
        "keeping.keeper.answers.read_operations",  # reads six texts
        "keeping.keeper.prompts.shown_document",
    ),
    4 * FACTOR,
)
# Each word of a question may be part of a time; they are given 4,000 characters at most.
MORE |= dict.fromkeys((name for name in RECIPES if "time" in name), 8 * FACTOR)
MORE |= dict.fromkeys(("recall.authors.put_to", "recall.shown.result_of"), 2 * FACTOR)  # a list of all words
MORE |= dict.fromkeys(
    (name for name in RECIPES if "keeping" in name), 20 * FACTOR
)  # each value and each version of it is a claim
MORE["recall.outdated.prevailing"] = 8 * FACTOR  # compares at most 2,000 characters of a message


@pytest.mark.parametrize("name", RECIPES)
def test_memory_is_a_small_multiple_of_the_text(name: str) -> None:
    peaks = {}
    for kind in kinds_for(name):
        text = text_of(kind, SIZE)
        RECIPES[name](text)  # what is made once, such as a regular expression, does not count
        tracemalloc.start()
        try:
            RECIPES[name](text)
            peaks[kind] = tracemalloc.get_traced_memory()[1] / SIZE
        finally:
            tracemalloc.stop()
    assert {kind: round(peak) for kind, peak in peaks.items() if peak > MORE.get(name, FACTOR)} == {}
