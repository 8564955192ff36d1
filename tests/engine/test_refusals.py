"""Which errors of providers mean that a question is refused, told from the real classes and from look-alikes."""

from __future__ import annotations

from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from langchain_core import exceptions

from langchain_workingmem._engine.calls import is_overflow, is_refusal


def openai_error(kind: type[openai.APIStatusError], status: int, code: str | None = None) -> openai.APIStatusError:
    request = httpx.Request("POST", "http://provider")
    response: Any = httpx.Response(status, request=request)  # of the httpx that the packages have, whichever that is
    return kind("no", response=response, body={"code": code})


class LookAlikeError(Exception):
    """An error with the words and the attributes that it is given."""

    def __init__(self, words: str = "no", **attributes: Any) -> None:
        super().__init__(words)
        vars(self).update(attributes)


REFUSALS = [
    openai_error(openai.BadRequestError, 400),
    LookAlikeError(status_code=400),
    LookAlikeError(code=HTTPStatus.BAD_REQUEST),  # google.api_core.exceptions.InvalidArgument
    LookAlikeError(http_status=413),
    LookAlikeError(status=422),  # aiohttp.ClientResponseError
    LookAlikeError(response=SimpleNamespace(status_code=422)),
    LookAlikeError(response={"ResponseMetadata": {"HTTPStatusCode": 400}}),  # botocore
    exceptions.ModelInvalidRequestError("no"),
]

PASSING = [
    openai_error(openai.RateLimitError, 429, "insufficient_quota"),
    openai_error(openai.AuthenticationError, 401),
    openai.APITimeoutError(openai_error(openai.NotFoundError, 404).request),
    exceptions.ModelTimeoutError("later"),
    ValueError("400"),
    LookAlikeError(code=lambda: 400),  # grpc.RpcError
    LookAlikeError(code=True, status_code=None, response=None),
    LookAlikeError(code=40_000),
    LookAlikeError(response={"ResponseMetadata": None}),
    KeyboardInterrupt(),
]


OVERFLOWS = [
    exceptions.ContextOverflowError("too long"),
    openai_error(openai.BadRequestError, 400, "context_length_exceeded"),
    *(
        LookAlikeError(words, status_code=400)
        for words in (
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens.",
            "prompt is too long: 208310 tokens > 200000 maximum",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            "An error occurred (ValidationException): Input is too long for requested model.",
            "too many tokens: total number of tokens in the prompt cannot exceed 4081",
            "Please reduce the length of the messages or completion.",
            "the request exceeds the available context size, try increasing it",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193.",
            "litellm.ContextWindowExceededError: no",
        )
    ),
]


KINDS: list[tuple[BaseException, bool, bool]] = [
    *((error, True, False) for error in REFUSALS),
    *((error, False, False) for error in PASSING),
    *((error, True, True) for error in OVERFLOWS),
]


@pytest.mark.parametrize(("error", "refused", "overflow"), KINDS, ids=repr)
def test_what_would_be_refused_again_is_a_refusal_and_what_is_too_long_an_overflow(
    error: BaseException, refused: bool, overflow: bool
) -> None:
    outer = RuntimeError("the chain failed")
    outer.__cause__ = error
    for one in (error, outer):
        assert (is_refusal(one), is_overflow(one)) == (refused, overflow)
