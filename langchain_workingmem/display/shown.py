"""What every record with a picture inherits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from langchain_workingmem.display.pictures import Picture


class Shown:
    """Shows its picture in notebooks, and in terminals through rich."""

    __slots__ = ()

    def _picture(self) -> Picture:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        from langchain_workingmem.display.html import html

        return html(self._picture())

    def __rich__(self) -> Any:
        from langchain_workingmem.display.terminal import rich

        return rich(self._picture())
