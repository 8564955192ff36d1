"""Chat models by name, and the checks and errors of all models by name."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from langchain_workingmem.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langchain_core.language_models import BaseChatModel


def check_model_name(name: str, argument: str) -> None:
    """Refuse "provider/model", which lacks the colon. After a colon a slash is a part of the name."""
    if "/" not in name.partition(":")[0] or name.startswith("accounts/fireworks"):  # a name that LangChain knows
        return
    provider, _, model = name.partition("/")
    provider = "google_genai" if provider == "google" else provider  # as LangChain calls it
    raise OptionError(
        f"{argument}={name!r}",
        remedy=f"a colon stands between provider and model, so use {f'{provider}:{model}'!r}; or name the provider of that "
        f"model, such as {f'huggingface:{name}'!r}",
    )


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
    check_model_name(name, "model")
    provider, _, model = name.partition(":")
    with model_errors(f"model={name!r}", "'langchain-workingmem[openai,agents]' and the provider's package"):
        if provider == "openai" and model:
            from langchain_openai import ChatOpenAI

            return ChatOpenAI(model=model)
        from langchain.chat_models import init_chat_model

        found: BaseChatModel = init_chat_model(name)
        return found
