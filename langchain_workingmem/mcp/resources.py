"""What clients read by a URI: working memory, threads, observations, files."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from mcp import McpError, types
from pydantic import AnyUrl

from langchain_workingmem._text.observed import to_minute, zone_name
from langchain_workingmem._text.unicode import visible
from langchain_workingmem.display.pictures import counted
from langchain_workingmem.errors import WorkingMemError
from langchain_workingmem.mcp import files
from langchain_workingmem.mcp.answers import quoted, title_of
from langchain_workingmem.mcp.offers import worded

if TYPE_CHECKING:
    from langchain_workingmem.mcp.operations import Operations

HOME = "workingmem://"
THREADS, WORKING_MEMORY, OBSERVATIONS = f"{HOME}threads", f"{HOME}working-memory", f"{HOME}observations"
RECENT = 20  # threads in the list of resources
_NOT_FOUND = -32002  # of the protocol
_BY_QUERY = "?thread_id="  # for "." and "..", which URLs drop from a path
_OF_THREAD, _LOG_OF_THREAD = "/working-memory", "/observations"
OF_USER = "Dated notes that stand for older messages of the user."
OF_THREAD = "Dated notes that stand for older messages of a conversation."


def thread_uri(thread_id: str) -> str:
    """Return the URI of a thread."""
    return f"{THREADS}/{_BY_QUERY if thread_id in {'.', '..'} else ''}{quote(thread_id, safe='')}"


async def listed(operations: Operations, resource: str, cursor: str | None) -> types.ListResourcesResult:
    """Return a page: the first one begins with working memory and threads, and text files follow."""
    try:
        found = await _conversations(operations, resource) if cursor is None else []
        texts, following = await operations.files.page(resource, cursor) if operations.files else ([], None)
        zone = operations.memory._core.state.zone(None, resource)
    except WorkingMemError as error:
        raise _unread(worded(error)) from error
    for info in texts:
        about = f"{counted(info.size, 'byte')}, changed {to_minute(info.updated_at, zone)} {zone_name(zone)}"
        found.append((files.uri_of(info.path), info.path, about, files.kind(info.path)))
    resources = [
        types.Resource(uri=AnyUrl(uri), name=name, title=name, description=about, mimeType=kind)
        for uri, name, about, kind in found
    ]
    return types.ListResourcesResult(resources=resources, nextCursor=following)


async def _conversations(operations: Operations, resource: str) -> list[tuple[str, str, str, str]]:
    """Return URI, name, description and type of working memory, observations, and the latest threads."""
    memory = operations.memory
    threads = await memory.threads.alist(resource_id=resource, limit=RECENT)
    zone = memory._core.state.zone(None, resource)
    found = [(THREADS, "Threads", "The latest stored conversations.", "application/json")]
    if operations.working_memory is not None and not operations.is_per_thread:
        about = "What is known about the user, kept between conversations."
        found.insert(0, (WORKING_MEMORY, "Working memory", about, _kind(operations, "")))
    if operations.observed == "resource":
        found.append((OBSERVATIONS, "Observations", OF_USER, "text/plain"))
    for one in threads:
        about = f"{counted(one.message_count, 'message')}, changed {to_minute(one.updated_at, zone)} {zone_name(zone)}"
        found.append((thread_uri(one.id), title_of(one) or quoted(one.id), about, "text/plain"))
    return found


def templates(operations: Operations) -> list[types.ResourceTemplate]:
    """Return the templates of URIs."""
    found = [("", "Thread", "The newest messages of a stored conversation.", "text/plain")]
    if operations.is_per_thread:
        about = "Working memory of one conversation."
        found.append((_OF_THREAD, "Working memory of a thread", about, _kind(operations, "")))
    if operations.observed == "thread":
        found.append((_LOG_OF_THREAD, "Observations of a thread", OF_THREAD, "text/plain"))
    uris = [(f"{THREADS}/{{thread_id}}{end}", *rest) for end, *rest in found]
    if operations.files is not None:
        uris.append((f"{files.URI}{{+path}}", "File", "A text file of the user.", "text/plain"))
    return [
        types.ResourceTemplate(uriTemplate=uri, name=name, description=about, mimeType=kind)
        for uri, name, about, kind in uris
    ]


async def read(operations: Operations, resource: str, uri: str) -> tuple[str, str]:
    """Return the text and the type of a resource."""
    thread_id, part = _parsed(uri)
    has_document = part == _OF_THREAD if operations.is_per_thread else uri == WORKING_MEMORY
    try:
        if uri == THREADS:
            _, data = await operations.list_threads(resource, limit=100)
            return quoted(data), "application/json"
        if has_document and operations.documents is not None:
            _, data = await operations.documents.get(resource, thread_id)
            return data["text"], _kind(operations, data["text"])
        if uri == OBSERVATIONS or part == _LOG_OF_THREAD:  # also of a program whose options are not known here
            return await operations.observations(resource, thread_id), "text/plain"
        if thread_id is not None and not part:
            text, _ = await operations.read_thread(resource, thread_id, limit=100)
            return visible(text), "text/plain"
        if operations.files is not None and uri.startswith(f"{files.URI}/"):
            return await operations.files.text(resource, uri)
    except WorkingMemError as error:
        raise _unread(worded(error)) from error
    raise _unread(f"There is no resource {quoted(uri[:200])}. Percent-encode the id of a thread.")


def _parsed(uri: str) -> tuple[str | None, str]:
    """Return the thread that a URI names, and which part of it is meant, "" for its messages."""
    path = uri.removeprefix(f"{THREADS}/")
    part = next((one for one in (_OF_THREAD, _LOG_OF_THREAD) if path.endswith(one)), "")
    name = path.removesuffix(part).removeprefix(_BY_QUERY)
    if path == uri or not name or set("/?#") & set(name):
        return None, ""
    return unquote(name), part


def _kind(operations: Operations, text: str) -> str:
    options = operations.working_memory
    if text.startswith("{") or (options is not None and options.schema is not None):
        return "application/json"
    return "text/markdown"


def _unread(message: str) -> McpError:
    return McpError(types.ErrorData(code=_NOT_FOUND, message=visible(message)))
