"""Queries of pages: the part behind the ? in a URL, checked. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from seamlessflow.infra.errors import SeamlessFlowError


class QueryRejected(SeamlessFlowError):
    """A query part that means nothing."""

    lasting = True

    def __init__(self, name: str, text: str, reason: str) -> None:
        self.name = name
        super().__init__(f"{name}={text[:200]}: {reason}")


class RunNotBeside(SeamlessFlowError):
    """A run that does not stand beside this one: the console was started without it."""

    lasting = True

    def __init__(self, run: str, beside: Sequence[str]) -> None:
        self.run = run
        names = ", ".join(beside) or "none"
        super().__init__(
            f"no run {run[:200]} stands beside this one (runs that do: {names}); "
            "start the console with --beside and its directory"
        )


class Query:
    """The parts of a query; a missing part is empty."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        self._parts = {name: text.strip() for name, text in parts.items()}

    def text(self, name: str) -> str:
        """Return a text."""
        return self._parts.get(name, "")

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return one of the choices, or an empty text if it is missing. Raises `QueryRejected`."""
        text = self.text(name)
        if text and text not in choices:
            raise QueryRejected(name, text, f"must be one of {', '.join(choices)}")
        return text

    def number(self, name: str, least: int = 0, most: int = 2**62) -> int | None:
        """Return a whole number, or None. Raises `QueryRejected`."""
        text = self.text(name)
        if not text:
            return None
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise QueryRejected(name, text, "must be a whole number")
        if not least <= int(text) <= most:
            raise QueryRejected(name, text, f"must be between {least} and {most}")
        return int(text)

    def real(self, name: str) -> float | None:
        """Return a number, or None. Raises `QueryRejected`."""
        text = self.text(name)
        if not text:
            return None
        try:
            return float(text)
        except ValueError as error:
            raise QueryRejected(name, text, "must be a number") from error

    def time(self, name: str) -> int | None:
        """Return a time in ms since the epoch, or None; UTC without a zone.

        Raises `QueryRejected`.
        """
        text = self.text(name)
        if not text:
            return None
        if text.isascii() and text.isdigit() and len(text) <= 15:
            return int(text)
        try:
            written = datetime.fromisoformat(text)
        except ValueError as error:
            reason = "must be a time such as 2026-01-31T12:00:05, or ms since 1970"
            raise QueryRejected(name, text, reason) from error
        zoned = written if written.tzinfo is not None else written.replace(tzinfo=UTC)
        return int(zoned.timestamp() * 1000)
