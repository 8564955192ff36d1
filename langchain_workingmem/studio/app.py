"""The routes of the studio, and who may enter."""

from __future__ import annotations

import hmac
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from langchain_workingmem import errors
from langchain_workingmem.serving import read_body
from langchain_workingmem.studio import conversations, inspecting, overview, stored
from langchain_workingmem.studio.site import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from langchain_workingmem.studio.site import Studio

    # A page runs in a thread of its own, and may take its time: the event loop is never its place
    Page = Callable[[Studio, Request], Response]
    Form = Callable[[Studio, Request, Mapping[str, str]], Response]

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
    "/": overview.overview,
    "/users": overview.users,
    "/threads": overview.threads,
    "/thread": conversations.thread,
    "/find": conversations.find,
    "/context": inspecting.context,
    "/recall": inspecting.recall,
    "/working-memory": stored.working_memory,
    "/log": stored.log,
    "/data": stored.data,
}
_FORMS: Mapping[str, Form] = {
    "/thread/delete": conversations.delete,
    "/working-memory": stored.change_working_memory,
    "/log": stored.change_log,
    "/data": stored.delete,
}
MOST_BYTES, MOST_FIELDS = 2**20, 10  # of a form
_NOTHING = "There is nothing here"
_STATUS = {  # the first that fits an error of memory
    (errors.MessageNotFoundError, errors.RevisionNotFoundError, errors.ObservationNotFoundError): (404, _NOTHING),
    (errors.ReadOnlyError,): (403, "Read only"),
    (errors.RedisConnectionError, errors.RedisReplyError): (503, "Redis does not answer as it should"),
    (errors.WorkingMemError,): (400, "This does not work"),
}
_FORM = "application/x-www-form-urlencoded"


def application(studio: Studio) -> ASGIApp:
    """Make the ASGI application of a studio."""
    routes: list[Any] = [Route(path, partial(page, studio)) for path, page in _PAGES.items()]
    routes += [Route(path, partial(_write, studio, page), methods=["POST"]) for path, page in _FORMS.items()]
    routes.append(Mount("/static", StaticFiles(packages=[("langchain_workingmem.studio", "static")])))
    handlers: Any = dict.fromkeys((HTTPException, errors.WorkingMemError), partial(_failed, studio))
    return Door(Starlette(routes=routes, exception_handlers=handlers), studio)


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
        if tokens := request.query_params.getlist("token"):
            app = self._entry(request) if self._is_token(tokens[0]) else _REFUSED
        elif not self._is_token(request.cookies.get(self._studio.cookie, "")):
            app = _REFUSED
        elif "of" in request.query_params:
            app = _unpacked(request)
        await app(scope, receive, with_headers)

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self._studio.token.encode())

    def _entry(self, request: Request) -> ASGIApp:
        """Set the cookie, and take the token out of the address, which stays in the history of the browser."""
        answer = _redirect(request, [pair for pair in request.query_params.multi_items() if pair[0] != "token"])
        answer.set_cookie(self._studio.cookie, self._studio.token, httponly=True, samesite="strict")
        return answer


_REFUSED = PlainTextResponse("Open the address that `workingmem studio` has printed: it holds the token.\n", 401)


def _unpacked(request: Request) -> ASGIApp:
    """Continue at the address of a form: what it is about is in one field, because browsers change line breaks in fields."""
    fields = [*request.query_params.multi_items()]
    packed = [pair for name, value in fields if name == "of" for pair in parse_qsl(value.lstrip("?"))]
    return _redirect(request, [*packed, *((name, value) for name, value in fields if name != "of" and value)])


def _redirect(request: Request, parameters: list[tuple[str, str]]) -> Response:
    """Continue at the same path: two slashes in front of it would name another host."""
    path = f"/{request.url.path.lstrip('/')}"
    return RedirectResponse(f"{path}?{urlencode(parameters)}" if parameters else path, 303)


async def _write(studio: Studio, page: Form, request: Request) -> Response:
    """Answer a form, if this studio may write and the form stands on one of its pages."""
    reason = ""
    if "origin" not in request.headers:  # `loopback_only` has compared it; browsers send it with every form
        reason = "The request names no origin: send the form of the page."
    if not studio.write:
        reason = "Start the studio with --write to change or delete something."
    if reason:
        return await run_in_threadpool(_error, studio, request, 403, "Refused", reason)
    if not request.headers.get("content-type", _FORM).startswith(_FORM):
        return await run_in_threadpool(_error, studio, request, 415, "Refused", "Send the form of the page.")
    body = await read_body(request, MOST_BYTES)

    def respond() -> Response:
        if body is None:
            return _error(studio, request, 413, "Refused", f"A form has at most {MOST_BYTES:,} bytes.")
        text = body.decode(errors="replace")
        try:
            form = dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS))
        except ValueError:
            return _error(studio, request, 413, "Refused", f"A form has at most {MOST_FIELDS} fields.")
        return page(studio, request, form)

    return await run_in_threadpool(respond)


def _failed(studio: Studio, request: Request, error: Exception) -> Response:
    """Answer an error with a page. Where nothing was ever stored, every page says what to do."""
    if isinstance(error, errors.ThreadNotFoundError | errors.ThreadOwnershipError):
        error = Missing()  # alike, so that nobody learns which threads exist
    if isinstance(error, HTTPException):
        return _error(studio, request, error.status_code, _NOTHING, str(error.detail))
    if isinstance(error, errors.OptionError) and studio.is_empty():
        return studio.page(request, "empty.html", user=studio.user_id)
    status, title = next(entry for kinds, entry in _STATUS.items() if isinstance(error, kinds))
    return _error(studio, request, status, title, error)


def _error(studio: Studio, request: Request, status: int, title: str, message: object) -> Response:
    return studio.page(request, "error.html", status, title=title, message=str(message))
