"""Tells a request that a provider refuses for good from a temporary failure."""

from __future__ import annotations

from collections.abc import Mapping
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


def is_refusal(error: BaseException) -> bool:
    """Tell whether a provider refused a request, and would refuse it again.

    It did if the error or its response has an HTTP status of 400, 413 or 422, or if LangChain says that the context is too long.
    The first of the error and its causes that has a status decides. No status, 429, 5xx and timeouts are temporary.
    """
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, _KINDS):
            return True
        if (status := _status(cause)) is not None:
            return status in REFUSED
        seen.add(id(cause))
        cause = cause.__cause__
    return False


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
