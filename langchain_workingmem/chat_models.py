"""Chat models by name, and the errors of all models by name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.language_models import BaseChatModel


@contextmanager
def model_errors(argument: str, install: str) -> Iterator[None]:
    """Turn what fails while a model is made into `OptionError`; `install` is what pip has to install for it."""
    try:
        yield
    except ImportError as error:
        raise OptionError(f"{argument}: {error}", remedy=f"pip install {install}") from error
    except Exception as error:  # no key, an unknown provider: each package has its own errors
        remedy = "check the name and its API key, or pass the model as an object"
        raise OptionError(f"{argument} cannot be made ({error})", remedy=remedy) from error


def chat_model_by_name(name: str) -> BaseChatModel:
    """Make a chat model from "openai:<model>" or any name of langchain's `init_chat_model`."""
    provider, _, model = name.partition(":")
    with model_errors(f"model={name!r}", "'langchain-workingmem[openai,agents]' and the provider's package"):
        if provider == "openai" and model:
            from langchain_openai import ChatOpenAI

            return ChatOpenAI(model=model)
        from langchain.chat_models import init_chat_model

        found: BaseChatModel = init_chat_model(name)
        return found
