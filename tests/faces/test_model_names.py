"""Names of models: provider:model."""

from __future__ import annotations

import pytest

from langchain_workingmem import Memory, OptionError, TitleOptions
from langchain_workingmem.chat_models import chat_model_by_name, check_model_name
from langchain_workingmem.embeddings import embeddings_by_name
from langchain_workingmem.store import RedisMemoryStore


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("openai/gpt-5-mini", "openai:gpt-5-mini"),
        ("google/gemini-2.5-flash", "google_genai:gemini-2.5-flash"),
        ("mistralai/mistral-small", "mistralai:mistral-small"),
        ("ollama/llama3:8b", "ollama:llama3:8b"),
        ("huggingface/org/model", "huggingface:org/model"),
    ],
)
def test_a_slash_in_place_of_the_colon_is_refused_with_the_name_that_is_meant(name: str, meant: str) -> None:
    for make in (chat_model_by_name, embeddings_by_name):
        with pytest.raises(OptionError, match=f"use '{meant}'"):
            make(name)


def test_every_argument_that_takes_a_name_says_so() -> None:
    with pytest.raises(OptionError, match=r"^embeddings='openai/small'.* use 'openai:small'"):
        Memory(embeddings="openai/small")
    with pytest.raises(OptionError, match=r"^model='openai/gpt-5-mini'.* use 'openai:gpt-5-mini'"):
        Memory(title=TitleOptions(model="openai/gpt-5-mini"))
    with pytest.raises(OptionError, match="use 'openai:small'"):
        RedisMemoryStore(index={"dims": 3, "embed": "openai/small"})


@pytest.mark.parametrize(
    "name",
    ["huggingface:org/model", "openrouter:openai/gpt-5-mini", "gpt-5-mini", "local", "accounts/fireworks/models/llama"],
)
def test_a_slash_in_a_models_own_name_is_fine(name: str) -> None:
    check_model_name(name, "model")


def test_a_name_of_hugging_face_is_passed_on() -> None:
    """It is refused for what it lacks, a package, and not for its name."""
    with pytest.raises(OptionError, match="huggingface:org/model") as caught:
        embeddings_by_name("huggingface:org/model")
    assert "colon" not in str(caught.value)
