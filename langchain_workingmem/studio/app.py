"""The routes of the studio, and who may enter."""

from __future__ import annotations

import hmac
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from langchain_workingmem import errors
from langchain_workingmem.studio import conversations, inspecting, stored
from langchain_workingmem.studio.site import Missing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from langchain_workingmem.studio.site import Studio

    Page = Callable[[Studio, Request], Awaitable[Response]]

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # the origin of a form is not sent with "no-referrer"
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PAGES: Mapping[str, Page] = {
    "/": conversations.threads,
    "/users": conversations.users,
    "/thread": conversations.thread,
    "/find": conversations.find,
    "/context": inspecting.context,
    "/recall": inspecting.recall,
    "/working-memory": stored.working_memory,
    "/data": stored.data,
}
_FORMS: Mapping[str, Page] = {
    "/thread/delete": conversations.delete,
    "/working-memory": stored.change_working_memory,
    "/data": stored.delete,
}
_NOTHING = "There is nothing here"
_STATUS = {  # the first that fits an error of memory
    (errors.MessageNotFoundError, errors.RevisionNotFoundError): (404, _NOTHING),
    (errors.ReadOnlyError,): (403, "Read only"),
    (errors.RedisConnectionError, errors.RedisReplyError): (503, "Redis does not answer as it should"),
    (errors.WorkingMemError,): (400, "This does not work"),
}
_FORM = "application/x-www-form-urlencoded"


def application(studio: Studio) -> ASGIApp:
    """Make the ASGI application of a studio."""

    @asynccontextmanager
    async def closing(_: Starlette) -> AsyncIterator[None]:
        yield
        for memory in {id(one): one for one in (studio.memory, *studio.documents.values())}.values():
            await memory.aclose()  # the connections of this event loop

    routes: list[Any] = [Route(path, partial(page, studio)) for path, page in _PAGES.items()]
    routes += [Route(path, partial(_write, studio, page), methods=["POST"]) for path, page in _FORMS.items()]
    routes.append(Mount("/static", StaticFiles(packages=[("langchain_workingmem.studio", "static")])))
    handlers: Any = dict.fromkeys((HTTPException, errors.WorkingMemError), partial(_failed, studio))
    return Door(Starlette(routes=routes, exception_handlers=handlers, lifespan=closing), studio)


class Door:
    """Lets nobody in without the token, and sends every answer with headers that keep other pages out."""

    def __init__(self, app: ASGIApp, studio: Studio) -> None:
        self._app, self._studio = app, studio

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401 to strangers; give the cookie to who brings the token."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, app = Request(scope), self._app
        if given := request.query_params.getlist("token"):
            app = self._entry(request) if self._is_token(given[0]) else _REFUSED
        elif not self._is_token(request.cookies.get(self._studio.cookie, "")):
            app = _REFUSED
        elif "of" in request.query_params:
            app = _unpacked(request)
        await app(scope, receive, with_headers)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._studio.token.encode())

    def _entry(self, request: Request) -> ASGIApp:
        """Set the cookie, and take the token out of the address, which stays in the history of the browser."""
        rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
        path = f"/{request.url.path.lstrip('/')}" + (f"?{urlencode(rest)}" if rest else "")
        answer: Response = RedirectResponse(path, 303)
        answer.set_cookie(self._studio.cookie, self._studio.token, httponly=True, samesite="strict")
        return answer


_REFUSED = PlainTextResponse("Open the address that `workingmem studio` has printed: it holds the token.\n", 401)


def _unpacked(request: Request) -> ASGIApp:
    """Continue at the address of a form: what it is about is in one field, because browsers change line breaks in fields."""
    given = [*request.query_params.multi_items()]
    of = [pair for name, value in given if name == "of" for pair in parse_qsl(value.lstrip("?"))]
    rest = [(name, value) for name, value in given if name != "of" and value]
    return RedirectResponse(f"{request.url.path}?{urlencode([*of, *rest])}", 303)


async def _write(studio: Studio, page: Page, request: Request) -> Response:
    """Answer a form, if this studio may write and the form stands on one of its pages."""
    if not studio.write:
        remedy = "Start the studio with --write to change or delete something."
        return _error(studio, request, 403, "Read only", remedy)
    if "origin" not in request.headers:  # `LoopbackOnly` has compared it; browsers send it with every form
        return _error(studio, request, 403, "Refused", "The request names no origin: send the form of the page.")
    if not request.headers.get("content-type", _FORM).startswith(_FORM):
        return _error(studio, request, 415, "Refused", "Send the form of the page.")
    try:
        await request.body()
    except ClientDisconnect:  # nobody waits for an answer
        return PlainTextResponse("", 400)
    return await page(studio, request)


async def _failed(studio: Studio, request: Request, error: Exception) -> Response:
    """Answer an error with a page."""
    if isinstance(error, errors.ThreadNotFoundError | errors.ThreadOwnershipError):
        error = Missing()  # alike, so that nobody learns which threads exist
    if isinstance(error, HTTPException):
        return _error(studio, request, error.status_code, _NOTHING, str(error.detail))
    status, title = next(answer for kinds, answer in _STATUS.items() if isinstance(error, kinds))
    return _error(studio, request, status, title, error)


def _error(studio: Studio, request: Request, status: int, title: str, message: object) -> Response:
    return studio.page(request, "error.html", status, title=title, message=str(message))
