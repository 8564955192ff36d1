"""Chat models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_workingmem.errors import OptionError
from langchain_workingmem.options import MODEL_REMEDY, check_model_name

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel


def chat_model_by_name(name: str) -> BaseChatModel:
    """Make a chat model from "openai:<model>" or any name of langchain's `init_chat_model`."""
    check_model_name(name, "model")
    provider, _, model = name.partition(":")
    try:
        if provider == "openai" and model:
            from langchain_openai import ChatOpenAI

            return ChatOpenAI(model=model)
        from langchain.chat_models import init_chat_model

        found: BaseChatModel = init_chat_model(name)
    except ImportError as error:
        raise OptionError(
            f"model={name!r}: {error}",
            remedy="pip install 'langchain-workingmem[openai,agents]' and the provider's package",
        ) from error
    except Exception as error:  # no key, an unknown provider: each package has its own errors
        raise OptionError(f"model={name!r} cannot be made ({error})", remedy=MODEL_REMEDY) from error
    return found


def chat_model(model: BaseChatModel | str) -> BaseChatModel:
    """Make a chat model of a name; one that is passed stays."""
    if not isinstance(model, str):
        return model
    return chat_model_by_name(model)
