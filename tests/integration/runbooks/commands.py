"""Commands of a runbook, as its fenced blocks have them. Pure.

    ```sh                     each command is run
    ```console                each line that begins with `$ ` is run, the others are its output
    ```sh norun: REASON       commands that no test can run here
    ```yaml (or toml, text)   no commands
    ```python                 none either; it has to be Python

A command ends with status 0, or with another one that its comment names (`# ...; status 1 if ...`).
One whose comment says `until Ctrl-C` is interrupted after its first line.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^```(?P<kind>\w*)(?: norun: (?P<reason>\S.*))?$")
_INDENTED = re.compile(r"^    (?:\$ |\.venv/|scripts/|seamlessflow |curl |export |python )")
_COMMENT = re.compile(r"\s+# (?P<text>.*)$")
_STATUS = re.compile(r"\bstatus (\d+)")
_SHELL, _CONSOLE, _PYTHON = "sh", "console", "python"
_DATA = ("yaml", "toml", "text", _PYTHON)


class RunbookWrong(Exception):
    """A block that does not say what it is."""


@dataclass(frozen=True)
class Command:
    """A command, and what its comment says of its end."""

    text: str
    statuses: frozenset[int]
    until_stopped: bool


@dataclass(frozen=True)
class Block:
    """A fenced block with commands; those of a block with a reason are not run."""

    commands: tuple[Command, ...]
    reason: str


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks with commands. Raises `RunbookWrong`, and `SyntaxError` of Python."""
    lines = iter(page.splitlines())
    for line in lines:
        if _INDENTED.match(line):
            raise RunbookWrong(f"a command outside of a ```sh block: {line.strip()}")
        if not line.startswith("```"):
            continue
        fence, inside = _FENCE.match(line), _inside(lines)
        if fence is None or fence["kind"] not in (_SHELL, _CONSOLE, *_DATA):
            raise RunbookWrong(f"{line}: must be sh, console, python, yaml, toml or text")
        if fence["kind"] == _PYTHON:
            ast.parse("\n".join(inside))
        if fence["kind"] in _DATA:
            continue
        if fence["kind"] == _CONSOLE:
            inside = [text.removeprefix("$ ") for text in inside if text.startswith("$ ")]
        yield Block(tuple(map(_command, _joined(inside))), fence["reason"] or "")


def _inside(lines: Iterator[str]) -> list[str]:
    """Return the lines up to the end of the block."""
    return list(iter(lambda: next(lines), "```"))


def _joined(lines: list[str]) -> Iterator[str]:
    """Yield commands; one goes on behind a backslash and inside quotes."""
    whole = ""
    for line in lines:
        whole = f"{whole}\n{line}" if whole else line
        if not whole.endswith("\\") and whole.count("'") % 2 == 0 and whole.strip():
            yield whole
            whole = ""


def _command(line: str) -> Command:
    comment = _COMMENT.search(line)
    said = comment["text"] if comment else ""
    text = line[: comment.start()] if comment else line
    statuses = frozenset({0, *map(int, _STATUS.findall(said))})
    return Command(text.strip(), statuses, "until Ctrl-C" in said)
