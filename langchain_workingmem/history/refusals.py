"""Telling a question that a provider refuses from a failure that may pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core import exceptions

REFUSED = frozenset({400, 413, 422})  # HTTP: a bad request, one that is too large, one that makes no sense
# LangChain's own words for it, which some integrations raise without a status; older versions do not have both
_KINDS = tuple(
    kind
    for name in ("ContextOverflowError", "ModelInvalidRequestError")
    if isinstance(kind := getattr(exceptions, name, None), type)
)
_NAMES = ("status_code", "code", "http_status", "status")


def is_refusal(error: BaseException) -> bool:
    """Tell whether a provider refused what it was sent, so that the same would be refused again.

    That is an HTTP status of 400, 413 or 422 on the error or its response, or LangChain's error of a context that is too
    long. Of an error and its causes the first that tells a status decides. No status, 429, 5xx, a timeout: it may pass.
    """
    for one in _chain(error):
        if isinstance(one, _KINDS):
            return True
        status = _status(one)
        if status is not None:
            return status in REFUSED
    return False


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        yield found
        seen.add(id(found))
        found = found.__cause__


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    values = [getattr(place, name, None) for place in (error, response) for name in _NAMES]
    if isinstance(response, Mapping):  # botocore
        about = response.get("ResponseMetadata")
        values.append(about.get("HTTPStatusCode") if isinstance(about, Mapping) else None)
    return next((status for value in values if (status := _as_status(value)) is not None), None)


def _as_status(value: Any) -> int | None:
    """Read a status; OpenAI's `code` is a word, and gRPC's a method."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) == 3:
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return int(value) if is_number and 100 <= value <= 599 else None
