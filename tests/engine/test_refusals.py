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


def response(status: int) -> Any:  # of the httpx that the packages have, whichever that is
    return httpx.Response(status, request=httpx.Request("POST", "http://provider"))


def openai_error(kind: type[openai.APIStatusError], status: int, code: str | None = None) -> openai.APIStatusError:
    return kind("no", response=response(status), body={"code": code})


class LookAlikeError(Exception):
    """An error with the attributes that it is given."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("no")
        vars(self).update(attributes)


REFUSALS = [
    openai_error(openai.BadRequestError, 400, "context_length_exceeded"),
    openai_error(openai.UnprocessableEntityError, 422),
    openai_error(openai.APIStatusError, 413),
    httpx.HTTPStatusError("no", request=response(400).request, response=response(400)),
    LookAlikeError(status_code=400),
    LookAlikeError(code=400, status="INVALID_ARGUMENT"),  # google.genai.errors.ClientError
    LookAlikeError(code=HTTPStatus.BAD_REQUEST),  # google.api_core.exceptions.InvalidArgument
    LookAlikeError(code="400"),
    LookAlikeError(http_status=413),
    LookAlikeError(status=422),  # aiohttp.ClientResponseError
    LookAlikeError(response=SimpleNamespace(status_code=422)),
    LookAlikeError(
        response={"Error": {"Code": "ValidationException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    ),  # botocore
    exceptions.ContextOverflowError("too long"),
    exceptions.ModelInvalidRequestError("no"),
]

PASSING = [
    openai_error(openai.RateLimitError, 429, "insufficient_quota"),
    openai_error(openai.InternalServerError, 503),
    openai_error(openai.AuthenticationError, 401),
    openai_error(openai.NotFoundError, 404),
    openai.APITimeoutError(response(200).request),
    openai.APIConnectionError(request=response(200).request),
    exceptions.ModelRateLimitError("later"),
    exceptions.ModelTimeoutError("later"),
    httpx.ReadTimeout("later"),
    TimeoutError(),
    ValueError("400"),
    LookAlikeError(code="invalid_request_error"),
    LookAlikeError(code=lambda: 400),  # grpc.RpcError
    LookAlikeError(code=True, status_code=None, response=None),
    LookAlikeError(code=3),  # a number of gRPC
    LookAlikeError(code=40_000),
    LookAlikeError(response={"Error": "none"}),
    LookAlikeError(response={"ResponseMetadata": None}),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
def test_what_would_be_refused_again_is_a_refusal(error: Exception) -> None:
    assert is_refusal(error)
    assert is_refusal(caused(RuntimeError("the chain failed"), error))


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_none(error: BaseException) -> None:
    assert not is_refusal(error)
    assert not is_refusal(caused(RuntimeError("the chain failed"), error))


class SaysError(LookAlikeError):
    """An error with a status and words."""

    def __init__(self, words: str, status: int = 400) -> None:
        super().__init__(status_code=status)
        self.args = (words,)


OVERFLOWS = [
    exceptions.ContextOverflowError("too long"),
    openai_error(openai.BadRequestError, 400, "context_length_exceeded"),
    SaysError(
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens."
    ),
    SaysError("prompt is too long: 208310 tokens > 200000 maximum"),
    SaysError("input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000", 413),
    SaysError("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
    SaysError("Unable to submit request because the input token count is 40000 but model only supports up to 32768."),
    SaysError("An error occurred (ValidationException): Input is too long for requested model."),
    SaysError("Prompt contains 40000 tokens, too large for model with 32768 maximum context length"),
    SaysError("too many tokens: total number of tokens in the prompt cannot exceed 4081"),
    SaysError("This model's maximum prompt length is 131072 but the request contains 537812 tokens."),
    SaysError("Please reduce the length of the messages or completion."),
    SaysError("the request exceeds the available context size, try increasing it"),
    SaysError("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193.", 422),
    SaysError("Prompt exceeds max length"),
    SaysError("litellm.ContextWindowExceededError: no"),
]


@pytest.mark.parametrize("error", OVERFLOWS, ids=repr)
def test_what_is_longer_than_the_window_is_an_overflow(error: Exception) -> None:
    assert is_overflow(error)
    assert is_refusal(error)
    assert is_overflow(caused(RuntimeError("the chain failed"), error))


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error
