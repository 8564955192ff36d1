"""The routes: who asks, what is answered, and the end of a run whose client has left."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from contextlib import aclosing
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, get_args
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.checks import one_of
from langchain_workingmem.openai_server.protocol import TASKS, Answer, Refused, asked, refused_for, usage_of
from langchain_workingmem.openai_server.running import Usage, answering
from langchain_workingmem.serving import MOST_BYTES, Stream, check_tokens, read_body, resource_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from typing import TypeAlias

    from langchain_core.runnables import Runnable
    from starlette.datastructures import Headers
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.openai_server.protocol import Asked
    from langchain_workingmem.serving import Application

    Users: TypeAlias = "str | Mapping[str, str] | Callable[[Headers], str | Awaitable[str | None] | None]"

_log = logging.getLogger("langchain_workingmem")
_BROKEN = "the agent failed; the log of the server says why"


def application(
    agent: Runnable[Any, Any],
    memory: Memory | None = None,
    *,
    users: Users,
    name: str = "agent",
    stream: Stream = "words",
    max_bytes: int = MOST_BYTES,
) -> Application:
    """Return an ASGI application with `/v1/chat/completions` and `/v1/models`, to be served or mounted.

    The agent is a graph with memory and without a checkpointer, or another runnable that takes `{"messages": [...]}` and
    returns such a state, a message or a text. Clients may send the whole conversation each time, without ids; memory
    follows what they edit and ask again. They name the conversation in the header `X-Conversation-Id` (or Open WebUI's
    `X-OpenWebUI-Chat-Id`), or in the body as `metadata.thread_id`. Words are streamed as the model says them; what stands
    before a tool call is part of the stream, and no part of the answer that memory follows.

    Args:
        agent: What answers.
        memory: The memory of the agent, for clients that send the whole conversation each time: a list of one message begins
            the chat again. None: such a list is a new question, to which memory adds the history, for clients that send only
            what is new.
        users: Who asks. A dict of token -> resource id, for `Authorization: Bearer <token>`; a function, also an async one,
            of the request's headers that returns the resource id, or None for 401; or the resource id of all requests, which
            then nothing protects. The field `user` of a body is not read.
        name: Of the model. `<name>-tasks` is the same agent for titles and tags: it sees no messages and saves nothing.
        stream: "answers" streams an answer when the run is over: for guardrails, which may change or take back what the model
            has said.
        max_bytes: Of a body; a larger one is refused with 413.
    """
    if isinstance(users, str):
        check_id(users, "users")
        owner: Any = lambda _: users  # noqa: E731
    elif callable(users):
        owner = users
    else:
        known = check_tokens(users.items())

        def owner(headers: Headers) -> str | None:
            return resource_of(headers.raw, known)

    one_of(stream, get_args(Stream), "stream")
    begun = int(time.time())

    async def user_of(request: Request) -> str:
        found = owner(request.headers)
        user = await found if isawaitable(found) else found
        if not user:
            raise HTTPException(401, "send a known key as `Authorization: Bearer KEY`", {"WWW-Authenticate": "Bearer"})
        return str(user)

    async def models(request: Request) -> Response:
        await user_of(request)
        found = [
            {"id": id, "object": "model", "created": begun, "owned_by": "langchain-workingmem"}
            for id in (name, name + TASKS)
        ]
        if (wanted := request.path_params.get("id")) is None:
            return JSONResponse({"object": "list", "data": found})
        for one in found:
            if one["id"] == wanted:
                return JSONResponse(one)
        raise Refused(404, f"there is no model {wanted!r}", code="model_not_found")

    async def complete(request: Request) -> Any:
        user = await user_of(request)
        body = await read_body(request, max_bytes)
        if body is None:
            raise Refused(413, f"send at most {max_bytes:,} bytes")
        found, usage = asked(body, request.headers, name), Usage()
        return _Completion(found, answering(agent, memory, found, user, usage, stream), usage)

    return Starlette(
        routes=[
            Route("/v1/models", models),
            Route("/v1/models/{id:path}", models),
            Route("/v1/chat/completions", complete, methods=["POST"]),
        ],
        exception_handlers={Refused: _refused, HTTPException: _refused},
    )


def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        code = "invalid_api_key" if error.status_code == 401 else None
        made = Refused(error.status_code, error.detail, code=code)
        return JSONResponse(made.body, error.status_code, error.headers)
    assert isinstance(error, Refused)  # noqa: S101 - for mypy
    return JSONResponse(error.body, error.status)


class _Completion:
    """The response to one request; a client that leaves ends the run."""

    def __init__(self, asked: Asked, events: AsyncIterator[str | Answer], usage: Usage) -> None:
        self._asked = asked
        self._events: Any = events
        self._usage = usage
        self._head = {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": asked.model}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._respond(scope, receive, send))
        left = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, left):
                task.cancel()
            await asyncio.wait({work, left})
        if not work.cancelled():
            work.result()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            try:
                first = await anext(self._events)
            except Exception as error:  # noqa: BLE001 - an agent may do anything
                refused = _told(error)
                return await JSONResponse(refused.body, refused.status)(scope, receive, send)
            if self._asked.is_streamed:
                return await self._stream(first, send)
        message = {"role": "assistant", "content": first.text}
        choice = {"index": 0, "message": message, "finish_reason": first.finish_reason, "logprobs": None}
        body = {**self._head, "object": "chat.completion", "choices": [choice], "usage": usage_of(self._usage.total)}
        return await JSONResponse(body)(scope, receive, send)

    async def _stream(self, first: str | Answer, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        headers.append((b"x-accel-buffering", b"no"))  # of nginx
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def event(data: Any) -> None:
            line = data if isinstance(data, str) else json.dumps(data)
            await send({"type": "http.response.body", "body": f"data: {line}\n\n".encode(), "more_body": True})

        async def delta(finish_reason: str | None = None, **delta: str) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
            await event({**head, "choices": [choice]})

        head: dict[str, Any] = {**self._head, "object": "chat.completion.chunk"}
        if self._asked.with_usage:
            head["usage"] = None
        await delta(role="assistant", content="")
        try:
            found: Any = first
            while isinstance(found, str):
                await delta(content=found)
                found = await anext(self._events)
            await delta(finish_reason=found.finish_reason)
            if self._asked.with_usage:
                await event({**head, "choices": [], "usage": usage_of(self._usage.total)})
            await event("[DONE]")
        except Exception as error:  # noqa: BLE001 - the status is sent, so the stream says it
            await event(_told(error).body)
        await send({"type": "http.response.body", "body": b""})


def _told(error: Exception) -> Refused:
    """Return the answer to an error, and log what a client must not see."""
    if (refused := refused_for(error)) is not None:
        return refused
    _log.error("an agent behind the OpenAI protocol failed", exc_info=error)
    return Refused(500, _BROKEN)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
