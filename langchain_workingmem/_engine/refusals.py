"""Tells a request that a provider refuses for good from a temporary failure, and from one that is only too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core import exceptions

REFUSED = frozenset({400, 413, 422})  # HTTP: bad request, too large, not processable
# LangChain's errors for it, which some integrations raise without a status; older versions lack them
_KINDS = tuple(
    kind
    for name in ("ContextOverflowError", "ModelInvalidRequestError")
    if isinstance(kind := getattr(exceptions, name, None), type)
)
_NAMES = ("status_code", "code", "http_status", "status")
_OVERFLOW: type[Exception] | tuple[()] = getattr(exceptions, "ContextOverflowError", ())
# How OpenAI, Anthropic, Google, Bedrock, Mistral, Cohere, xAI, Groq, Z.ai, vLLM, llama.cpp and TGI say that a prompt is too long
_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size|limit)|(?:prompt|input) (?:is )?too long|too many (?:\w+ )?tokens|token limit"
    r"|maximum (?:prompt|input) length|(?:prompt|input)s?\b[^.]{0,80}\b(?:tokens?|length)\b[^.]{0,80}(?:exceed|only supports|must)"
    r"|prompt exceeds|inputs`? must have less than|reduce the length of the (?:messages|prompt|input)",
    re.IGNORECASE,
)


def is_refusal(error: BaseException) -> bool:
    """Tell whether a provider refused a request, and would refuse it again.

    It did if the error or its response has an HTTP status of 400, 413 or 422, or if LangChain says that the context is too long.
    The first of the error and its causes that has a status decides. No status, 429, 5xx and timeouts are temporary.
    """
    for cause in _chain(error):
        if isinstance(cause, _KINDS):
            return True
        if (status := _status(cause)) is not None:
            return status in REFUSED
    return False


def is_overflow(error: BaseException) -> bool:
    """Tell whether a request was refused because it is longer than the model's window: a shorter one may pass.

    It was if LangChain says so, or if the words of a refusal name the length of the context. A bare 413 may mean anything.
    """
    for cause in _chain(error):
        if isinstance(cause, _OVERFLOW):
            return True
        if (status := _status(cause)) is not None:
            words = f"{cause} {getattr(cause, 'code', '')} {getattr(cause, 'body', '')}"
            return status in REFUSED and _TOO_LONG.search(words) is not None
    return False


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        yield cause
        seen.add(id(cause))
        cause = cause.__cause__


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    values: list[Any] = [getattr(source, name, None) for source in (error, response) for name in _NAMES]
    if isinstance(response, Mapping):  # botocore
        about = response.get("ResponseMetadata")
        values.append(about.get("HTTPStatusCode") if isinstance(about, Mapping) else None)
    for value in values:  # which may be anything: OpenAI's `code` is a word, and gRPC's a method
        is_number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) == 3
        status = int(value) if is_number else value
        if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599:
            return int(status)
    return None
