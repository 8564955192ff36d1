"""`docs`: the documentation that comes with the package, for people, and for coding agents, offline."""

from __future__ import annotations

import os
import re
import runpy
import sys
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from langchain_workingmem.cli.base import Output, misused
from langchain_workingmem.cli.streams import reading, text
from langchain_workingmem.errors import OptionError

_PACKAGE = Path(__file__).parents[1]
_LIST = "llms.txt"  # as https://llmstxt.org describes it
_ENTRY = re.compile(r"^- \[(?P<title>.+?)\]\((?P<name>.+?)\.md\): (?P<about>.+)$|^## (?P<section>.+)$", re.MULTILINE)

PageName = Annotated[
    str | None,
    typer.Argument(metavar="PAGE", help="Such as recall or how-to/agent. Without it, all pages are listed."),
]
Words = Annotated[str | None, typer.Option("--search", metavar="WORDS", help="List the lines that hold all words.")]
AsPath = Annotated[bool, typer.Option("--path", help="Print the path of the page, or of the folder, and nothing else.")]
InViewer = Annotated[bool, typer.Option("--open", help="Open the page, or the folder, in the viewer of your system.")]


@dataclass(frozen=True, kw_only=True)
class Page:
    """An entry of the list."""

    name: str  # without `.md`
    title: str
    about: str
    section: str

    @property
    def path(self) -> Path:
        """Return its file."""
        return _folder() / f"{self.name}.md"

    def fields(self) -> dict[str, Any]:
        """Return what JSON shows of it."""
        return {**asdict(self), "path": str(self.path)}


def docs(
    page: PageName = None,
    *,
    search: Words = None,
    path: AsPath = False,
    in_viewer: InViewer = False,
) -> Output:
    """Show the documentation that comes with the package, as Markdown. It needs no Redis and no network.

    Examples:
        workingmem docs                  # all pages
        workingmem docs quickstart
        workingmem docs --search "time zone"
    """
    if (search is not None) + path + in_viewer > 1:
        misused("--search, --path and --open: pass one of them")
    pages = _pages()
    chosen = None if page is None or _plain(page) in {"", "llms", _LIST} else _chosen(pages, page)
    if search is not None:
        yield from _lines([chosen] if chosen else pages, search)
    elif path:
        found = str(chosen.path if chosen else _folder())
        yield {"path": found}, found
    elif in_viewer:
        _open(chosen.path if chosen else _folder())
    elif chosen:
        content = _read(f"{chosen.name}.md")
        shown = partial(_show_page, content) if sys.stdout.isatty() else content.removesuffix("\n")
        yield {**chosen.fields(), "text": content}, shown
    else:
        yield [page.fields() for page in pages], _list(pages)


# ---------------------------------------------------------------------- the folder


@cache
def _folder() -> Path:
    """Find the folder: of the package, or of the checkout around it."""
    for folder in (_PACKAGE / "docs", _PACKAGE.parent / "docs"):
        if (folder / _LIST).is_file():
            return folder
    remedy = "install langchain-workingmem again, from its wheel"
    raise OptionError(f"there is no documentation in {_PACKAGE / 'docs'}", remedy=remedy)


@cache
def _build() -> dict[str, Any] | None:
    """Load what prepares the pages of a checkout; those of a wheel are prepared."""
    path = _folder() / "extensions" / "pages.py"
    return runpy.run_path(str(path)) if path.is_file() else None


def _read(name: str) -> str:
    """Read a file of the folder."""
    build = _build()
    if build is not None:
        return str(build["content"](_folder().parent, name))
    with reading(str(_folder() / name)) as file:
        return file.read()


def _pages() -> list[Page]:
    pages, section = [], ""
    for found in _ENTRY.finditer(_read(_LIST)):
        if found["section"]:
            section = found["section"]
        else:
            pages.append(Page(name=found["name"], title=found["title"], about=found["about"], section=section))
    return pages


# ---------------------------------------------------------------------- one page


def _plain(wanted: str) -> str:
    """Take a name as people and links write it: `docs/Recall.md`, `../guide.md#history`."""
    parts = PurePosixPath(wanted.partition("#")[0].replace("\\", "/").strip().lower()).parts
    parts = tuple(part for part in parts if part not in {"/", ".", ".."})
    return "/".join(parts[parts[:1] == ("docs",) :]).removesuffix(".md")


def _chosen(pages: list[Page], wanted: str) -> Page:
    """Find a page by its name, by the last part of it, or by its title."""
    name = _plain(wanted)
    for found in (
        [one for one in pages if one.name in {name, f"{name}/index"}],
        [one for one in pages if one.name.rpartition("/")[2] == name],
        [one for one in pages if one.title.lower() == name],
    ):
        if len(found) == 1:
            return found[0]
    raise OptionError(f"there is no page {wanted!r}", remedy=f"{_near(pages, name)}`workingmem docs` lists all pages")


def _near(pages: list[Page], name: str) -> str:
    """Name up to three pages whose names are like this one."""
    known = {one.name.rpartition("/")[2]: one.name for one in pages} | {one.name: one.name for one in pages}
    near = [known[word] for word in known if name and word.startswith(name)]
    near += [known[word] for word in get_close_matches(name, known)]
    return f"try {', '.join(list(dict.fromkeys(near))[:3])}; " if near else ""


# ---------------------------------------------------------------------- what is shown


def _show_page(content: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "-FRX")  # colours, and no keys for what fits on the screen
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(content, hyperlinks=False))


def _list(pages: list[Page]) -> Any:
    if not sys.stdout.isatty():
        return _read(_LIST).removesuffix("\n")
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for at, page in enumerate(pages):
        if at == 0 or pages[at - 1].section != page.section:
            table.add_row(text(page.section, "bold"))
        table.add_row(text(f"  {page.name}"), text(page.about, "dim"))
    return table


def _lines(pages: list[Page], search: str) -> Output:
    words = search.lower().split()
    if not words:
        misused("--search: pass at least one word")
    found = [
        {"page": page.name, "line": number, "text": line}
        for page in pages
        for number, line in enumerate(_read(f"{page.name}.md").splitlines(), 1)
        if all(word in line.lower() for word in words)
    ]
    yield found, None
    for one in found:
        yield None, f"{one['page']}:{one['line']}: {one['text']}"
    if not found:
        raise OptionError(f"no line holds {search!r}", remedy="pass fewer words, or see `workingmem docs`")


def _open(path: Path) -> None:
    in_terminal = sys.platform not in {"darwin", "win32"}  # xdg-open may choose a program that needs ours until it ends
    if typer.launch(str(path), wait=in_terminal):
        raise OptionError(f"no program opens {path}", remedy="leave out --open, or pass --path and read the file")
