"""What all pages share: the memory, whose data may be shown, addresses, templates."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from langchain_workingmem._redis.keys import check_id
from langchain_workingmem._text.messages import ROLES, STRIDE, message_text
from langchain_workingmem._text.unicode import count_tokens
from langchain_workingmem.display.pictures import clean, clock, cut, minutes, shown_in
from langchain_workingmem.display.records import pretty
from langchain_workingmem.errors import OptionError
from langchain_workingmem.studio.markdown import LONGEST, Html, rendered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from starlette.requests import Request

    from langchain_workingmem._redis.state import MemoryState
    from langchain_workingmem.memory import Memory
    from langchain_workingmem.models import Thread
    from langchain_workingmem.options import Scope

DONE = {  # what a page says after a form of it
    "clear": "Cleared.",
    "delete": "Deleted.",
    "edit": "Stored.",
    "revert": "Restored.",
}
MOST = {"characters": 20_000, "lines": 1_000}  # of one text on a page
MOST_ROWS = 100


class Missing(HTTPException):
    """The page does not exist, or shows data of a user that this studio does not show."""

    def __init__(self) -> None:
        super().__init__(404, "Nothing is stored under this address.")


@dataclass(frozen=True, kw_only=True)
class Studio:
    """One studio."""

    memory: Memory
    token: str = field(repr=False)  # that a browser must know
    user_id: str | None = None  # whose data is shown; None: that of every user
    write: bool = False
    # the memories that read and write working memory, by its scope
    documents: Mapping[Scope, Memory] = field(default_factory=dict)
    is_program: bool = False  # the memory has the options of a program

    behind = 10 * STRIDE  # how far a page that shows a message goes on behind it

    @property
    def state(self) -> MemoryState:
        """Return the options of the memory."""
        return self.memory._core.state

    def is_empty(self) -> bool:
        """Tell whether nothing was ever stored."""
        return self.memory._core.run(self.state.indexes.missing())

    @cached_property
    def cookie(self) -> str:
        """Return the name of the cookie; browsers send it to every port of this machine."""
        return f"workingmem-{hashlib.sha256(self.token.encode()).hexdigest()[:12]}"

    def owner(self, request: Request) -> str:
        """Return the user of a page. A studio of one user knows no other."""
        users = set(request.query_params.getlist("user"))
        if self.user_id is None and len(users) == 1:
            return check_id(users.pop(), "user")
        if self.user_id is None or not users <= {self.user_id}:
            raise Missing
        return self.user_id

    def thread(self, request: Request) -> Thread:
        """Return the thread of a page. One of another user is missing."""
        user, ids = self.owner(request), request.query_params.getlist("thread")
        id = check_id(ids[0], "thread") if len(ids) == 1 else None
        thread = self.memory.threads.get(id, user_id=user) if id else None
        if thread is None:
            raise Missing
        return thread

    def url(self, path: str, /, **parameters: Any) -> str:
        """Write an address. Ids stand in the query, where every character can be written."""
        if self.user_id is not None:
            parameters.pop("user", None)
        query = {name: value for name, value in parameters.items() if value is not None and value != ""}
        return f"{path}?{urlencode(query)}" if query else path

    @cached_property
    def templates(self) -> Environment:
        """Return the templates. They escape every value."""
        environment = Environment(
            loader=PackageLoader("langchain_workingmem.studio"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals |= {
            "studio": self,
            "url": self.url,
            "clock": clock,
            "done": DONE,
            "behind": self.behind,
            "markdown_longest": LONGEST,
        }
        environment.filters |= _FILTERS
        return environment

    @contextmanager
    def times(self, user: str | None, thread: str | None = None) -> Iterator[None]:
        """Write times in the zone of a user; UTC for all users, and where the program does not know the zone."""
        zone = None
        with suppress(OptionError):
            zone = self.state.zone(thread, user) if user else None
        with shown_in(zone):
            yield

    def page(self, request: Request, template: str, status: int = 200, /, **values: Any) -> Response:
        """Answer with a page, whose times are in the zone of its user."""
        values |= {"path": request.url.path, "query": request.query_params, "status": status}
        thread = values.setdefault("thread", None)
        with self.times(values.get("user"), getattr(thread, "id", thread)):
            return HTMLResponse(self.templates.get_template(template).render(**values), status)

    def go(self, path: str, /, at: str = "", **parameters: Any) -> Response:
        """Continue on a page that can be reloaded, `at` one of its elements."""
        return RedirectResponse(self.url(path, **parameters) + (f"#{at}" if at else ""), 303)


def number(value: object, digits: int = 15) -> int | None:
    """Read a number of a query or a form; anything else is None."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def size(request: Request, name: str, default: int, most: int = MOST_ROWS) -> int:
    """Read how much a page shall show."""
    return min(number(request.query_params.get(name)) or default, most)


def confirm(form: Mapping[str, str], id: str, problem: str, what: str) -> None:
    """Check that a form repeats an id: as it is, or as a page shows it, because a field cannot hold every character."""
    value = form.get("confirm")
    typed, exact, visible = (str(text).translate({10: None, 13: None}) for text in (value, id, clean(id)))
    if value is None or typed not in {exact, visible}:
        raise OptionError(problem, remedy=f"write {what} into the field to confirm the deletion")


def marked(text: str) -> Html:
    """Show Markdown as HTML; JSON and a long text as they are."""
    source = clean(cut(pretty(text), **MOST))
    if len(source) > LONGEST or source.lstrip().startswith(("{", "[")):
        return Html(f'<pre class="document">{escape(source)}</pre>')
    return rendered(source)


_FILTERS: dict[str, Callable[..., object]] = {
    "shown": lambda text: clean(cut(str(text), **MOST)),
    "label": lambda text: clean(cut(str(text), 80)),
    "minutes": lambda time: "" if time is None else minutes(time),
    "number": "{:,}".format,
    "tokens": count_tokens,
    "said": partial(message_text, whole=True),
    "role": lambda kind: ROLES.get(kind, kind),
    "pretty": pretty,
    "marked": marked,
    "size": lambda count: f"{count / 2**20:,.1f} MiB",
    "named": lambda thread, beginnings: thread.title or beginnings.get(thread.id) or thread.id,
    "value": partial(json.dumps, ensure_ascii=False, default=str),
}
