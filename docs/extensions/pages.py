"""The folder `docs` of a wheel: the pages as plain Markdown, which needs no site, no tests and no network.

The build writes them into the wheel (hatch_build.py), with the README as its description, and `workingmem docs` of a checkout shows them as they are now.
It needs nothing but Python, because a build has nothing else.
"""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NAME = "langchain_workingmem"
_HIDDEN = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)  # what only the tests need
_PICTURE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_DIRECTIVE = re.compile(r"^::: (\S+)\n((?: +.*\n?)*)", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]]+)\]\((?!https?:)[^)]*\)")
_NAMED = re.compile(r"\[([^\]]+)\]\[langchain_workingmem[^\]]*\]")
_ANCHOR = re.compile(r"\.md#langchain_workingmem[^)]*\)")
_PLANNED = re.compile(r"^    @operation\n", re.MULTILINE)
_PLAN = re.compile(r"-> Plan\[(.+)\]:$", re.MULTILINE)  # what such a method is written to return
_REMARK = re.compile(r"\s+# (?:noqa|type:).*$", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


def names(root: Path) -> list[str]:
    """List the files of the folder."""
    docs = root / "docs"
    return ["llms.txt", *sorted(path.relative_to(docs).as_posix() for path in docs.rglob("*.md"))]


def content(root: Path, name: str) -> str:
    """Return a file of the folder. The directives of the reference become the source that they name, without bodies."""
    text = (root / "docs" / name).read_text(encoding="utf-8")
    if not name.startswith("reference/"):
        return _PICTURE.sub(r"*Picture: \1*", _HIDDEN.sub("", text))
    text = _ANCHOR.sub(".md)", _NAMED.sub(r"\1", text))
    return _DIRECTIVE.sub(lambda found: _entry(root, found[1], found[2]), text)


def description(root: Path) -> str:
    """Return the README for a package index, where relative links and pictures lead nowhere."""
    text = _HIDDEN.sub("", (root / "README.md").read_text(encoding="utf-8"))
    return _LINK.sub(r"\1", _PICTURE.sub(r"*Picture: \1*", text))


def _entry(root: Path, name: str, options: str) -> str:
    """Write the entry of a class, a function, a type or a module."""
    home, _, own = name.rpartition(".")
    found = _find(root, _file(root, home), own)
    if found is None:
        return f"```text\n{ast.get_docstring(_parsed(_file(root, name)))}\n```\n"
    stubs: list[str] = []
    while found:
        stub = _stub(*found, options)
        if not stubs or "    def " in stub:
            stubs.append(stub)
        bases = [one.id for one in getattr(found[1], "bases", ()) if isinstance(one, ast.Name)]
        above = [_find(root, found[0], base) for base in bases if base not in _entries(root)]
        found = next(filter(None, above), None)  # a base class that no page describes
    level = "###" if "heading_level: 3" in options else "##"
    return f"{level} {own}\n\n```python\n# {name}\n" + "\n\n\n".join(stubs) + "\n```\n"


def _find(root: Path, file: Path, own: str) -> tuple[Path, ast.AST] | None:
    """Find the definition of a name that a module of the package defines or imports."""
    for node in ast.walk(_parsed(file)):
        if not isinstance(node, ast.ImportFrom):
            continue
        ours = (node.module or "").startswith(NAME)
        if any(alias.name == own for alias in node.names):
            return _find(root, _file(root, node.module), own) if ours else None
        if ours and node.names[0].name == "*" and (found := _find(root, _file(root, node.module), own)):
            return found
    return next(((file, node) for node in _parsed(file).body if own in _defined(node)), None)


def _file(root: Path, module: str | None) -> Path:
    path = root.joinpath(*(module or "").split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(_source(file))


@cache
def _source(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def _defined(node: ast.AST) -> list[str]:
    """Return the names that a statement defines."""
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


@cache
def _entries(root: Path) -> frozenset[str]:
    pages = (path.read_text(encoding="utf-8") for path in (root / "docs/reference").glob("*.md"))
    return frozenset(found[1].rpartition(".")[2] for page in pages for found in _DIRECTIVE.finditer(page))


# ---------------------------------------------------------------------- source without bodies


def _stub(file: Path, node: ast.AST, options: str) -> str:
    """Keep signatures, docstrings and fields with their comments."""
    lines = _source(file).splitlines()
    if isinstance(node, ast.ClassDef):
        text = _class(lines, node, options)
    elif isinstance(node, Function):
        text = _function(lines, node, None)
    else:
        text = "\n".join(lines[_start(node) : node.end_lineno])  # type: ignore[attr-defined]
    if _PLANNED.search(text):
        text = _PLAN.sub(r"-> \1:", _PLANNED.sub("", text))
    return _REMARK.sub("", text)


def _class(lines: list[str], node: ast.ClassDef, options: str) -> str:
    members = re.findall(r"^ +- (\w+)$", options, re.MULTILINE)
    filters = re.search(r"filters: (.+)", options)
    hidden = re.compile("|".join(one[1:] for one in json.loads(filters[1])) if filters else "^_")
    methods = [one for one in node.body if isinstance(one, Function)]
    twins = {one.name for one in methods if (ast.get_docstring(one) or "").startswith("Async twin of")}
    twins |= {name for one in node.body if "= twin(" in lines[one.lineno - 1] for name in _defined(one)}

    def is_shown(name: str) -> bool:
        if name == "__init__":
            return "merge_init_into_class: false" not in options
        if hidden.search(name) or name in twins or "members: false" in options:
            return False
        return name in (members or [name])

    documented = ast.get_docstring(node) is not None
    end = (node.body[0].end_lineno if documented else _start(node.body[0])) or 0
    parts = ["\n".join(lines[_start(node) : end])]
    for one in node.body[documented:]:
        before, end = end, one.end_lineno or 0
        name = next(iter(_defined(one)), "_")
        if not is_shown(name):
            continue
        if isinstance(one, Function):
            twin = next((twin for twin in (f"a{name}", f"aget_{name}") if twin in twins), None)
            parts.append("\n" + _function(lines, one, twin))
        else:
            parts.append("\n".join(lines[before:end]))  # with the comments above it
    return "\n".join(parts)


def _function(lines: list[str], node: Function, twin: str | None) -> str:
    first = node.body[0]
    end = (first.end_lineno if ast.get_docstring(node) else first.lineno - 1) or 0
    while lines[end - 1].lstrip().startswith("#"):  # of the body
        end -= 1
    body = [" " * (node.col_offset + 4) + "..." + (f"  # async twin: {twin}" if twin else "")]
    return "\n".join(lines[_start(node) : end] + body)


def _start(node: ast.AST) -> int:
    """Return the index of its first line."""
    decorators = getattr(node, "decorator_list", [])
    return int(min(one.lineno for one in (node, *decorators))) - 1
