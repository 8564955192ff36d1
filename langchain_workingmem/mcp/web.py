"""The server over streamable HTTP: one request, one answer. There are no sessions, so there is none to take over."""

from __future__ import annotations

import re
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest
from inspect import signature
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem.errors import OptionError
from langchain_workingmem.mcp.protocol import build, refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp.server.lowlevel import Server
    from starlette.types import Message, Receive, Scope, Send

    from langchain_workingmem.memory import Memory
    from langchain_workingmem.serving import Application

SHORTEST = 16  # characters of a token
_TOKEN = re.compile(r"[!-~]+")
_RESOURCE = "langchain_workingmem.resource"  # in the scope of a request
_MOST_BYTES = 32 * 2**20  # of a request: what is too large for a tool gets an answer that says so
# newer versions of the SDK limit requests to 4 MiB, older ones have no limit
_LIMIT = "max_request_body_size"
_OPTIONS: dict[str, Any] = {_LIMIT: _MOST_BYTES} if _LIMIT in signature(StreamableHTTPSessionManager).parameters else {}
_MAKE = "make one with: python -c 'import secrets; print(secrets.token_urlsafe())'"


def application(
    memory: Memory,
    *,
    resource_id: str | None = None,
    tokens: Mapping[str, str] | None = None,
    read_only: bool = False,
) -> Application:
    """Return an ASGI application that is an MCP server over streamable HTTP, to be mounted at a path of a program.

    Either `resource_id`, the one resource of all requests, which then nothing protects. Or `tokens`: a dict of token ->
    resource; a request says its token in the header `Authorization: Bearer <token>`, and gets 401 without a known one. The
    rest is as `server` says. A request needs no other one before it: any process answers any request, and no lifespan has to
    run. The hosts and origins that may call are the program's matter. Raises `OptionError` and `IdError`.
    """
    if (resource_id is None) == (tokens is None):
        raise OptionError("an MCP server needs an owner", remedy="pass either resource_id=... or tokens={...}")
    if resource_id is not None:
        check_id(resource_id, "resource_id")
    known = check_tokens(tokens.items()) if tokens is not None else None

    server = build(memory, _owner, read_only=read_only)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            msg = f"this application answers HTTP, not {scope['type']}"
            raise RuntimeError(msg)
        resource = resource_id if known is None else _resource_of(scope, known)
        if resource is None:
            said = "Refused: send a known token as `Authorization: Bearer TOKEN`.\n"
            await PlainTextResponse(said, 401, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
        elif scope["method"] != "POST":  # there is no stream to open and no session to end
            await PlainTextResponse("Use POST.\n", 405, {"Allow": "POST"})(scope, receive, send)
        elif (body := await _body(Request(scope, receive))) is None:
            await PlainTextResponse(f"Send at most {_MOST_BYTES:,} bytes.\n", 413)(scope, receive, send)
        elif (refused := refusal(body)) is not None:
            await Response(refused.text, refused.status, media_type="application/json")(scope, receive, send)
        else:
            parts = iter([{"type": "http.request", "body": body}])

            async def again() -> Message:
                return next(parts, None) or await receive()

            manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True, **_OPTIONS)
            async with manager.run():
                await manager.handle_request({**scope, _RESOURCE: resource}, again, send)

    return answer


async def _body(request: Request) -> bytes | None:
    """Return the body of a request; None for one that is too large, or whose client has left."""
    body = bytearray()
    with suppress(ClientDisconnect):
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BYTES:
                return None
        return bytes(body)
    return None


def _owner(server: Server[Any, Any]) -> str:
    request: Any = server.request_context.request
    return str(request.scope[_RESOURCE])


def at_path(path: str, app: Application) -> Application:
    """Serve an application at one path, and nothing else."""
    return Starlette(routes=[Route(path, app)])


def check_tokens(tokens: Iterable[tuple[str, str]]) -> list[tuple[bytes, str]]:
    """Return the digests of tokens with their resources. An error says which token is wrong, never the token itself."""
    known: dict[bytes, str] = {}
    for number, (token, resource) in enumerate(tokens, 1):
        if not isinstance(token, str) or not _TOKEN.fullmatch(token) or len(token) < SHORTEST:
            seen = f"token {number} is shorter than {SHORTEST} characters, or holds other ones than visible ASCII"
            raise OptionError(seen, remedy=_MAKE)
        digest = sha256(token.encode()).digest()
        if digest in known:
            raise OptionError(f"token {number} stands there twice", remedy="give each token one resource")
        known[digest] = check_id(resource, f"the resource of token {number}")
    if not known:
        raise OptionError("there is no token", remedy="pass an object such as {TOKEN: RESOURCE}")
    return list(known.items())


def _resource_of(scope: Scope, known: list[tuple[bytes, str]]) -> str | None:
    sent = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    scheme, _, token = sent[0].partition(b" ") if len(sent) == 1 else (b"", b"", b"")
    if scheme.lower() != b"bearer":
        return None
    digest = sha256(token.strip()).digest()
    matching = [resource for one, resource in known if compare_digest(one, digest)]  # each is compared, in equal time
    return matching[0] if matching else None
