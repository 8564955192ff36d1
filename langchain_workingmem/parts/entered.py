"""`with` and `async with` for whoever can be set up and closed."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType


class Entered(Protocol):
    """Sets up when entered, and closes when left, or when setting up fails."""

    @abstractmethod
    def setup(self) -> None:
        """Make what is needed on the server."""

    @abstractmethod
    async def asetup(self) -> None:
        """Async twin of `setup`."""

    @abstractmethod
    def close(self) -> None:
        """Close what was opened."""

    @abstractmethod
    async def aclose(self) -> None:
        """Async twin of `close`."""

    def __enter__(self) -> Self:
        try:
            self.setup()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.asetup()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
