"""The doctor's findings, and the pure rules that make them from facts.

`doctor.py` gathers the facts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from seamlessflow.infra.rendering.settings import CHAT_TEMPLATE, FROM_MODEL, RendererSettings

GB = 1_000_000_000
_NUMBER = re.compile(r"\d+")
_FLOOR = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)\s*(?P<rule>>=|==)\s*(?P<version>[0-9][0-9.]*)")


class Grade(StrEnum):
    """A finding's grade."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """Result of one check; `remedy` is empty if the grade is ok."""

    what: str
    grade: Grade
    detail: str
    remedy: str = ""


def failed(findings: list[Finding]) -> bool:
    """Return True if a finding keeps the system from running."""
    return any(finding.grade is Grade.FAILED for finding in findings)


def python(version: tuple[int, int]) -> Finding:
    """Judge the interpreter's version."""
    text = ".".join(map(str, version))
    if version >= (3, 11):
        return Finding("Python", Grade.OK, text)
    return Finding("Python", Grade.FAILED, text, "install Python 3.11 or newer")


def package(requirement: str, installed: str | None, needed_for: str) -> Finding | None:
    """Judge an installed package by a requirement; return None if it asks for no version.

    `installed` is None for a missing package. `needed_for` is the extra that requires it, empty for
    a package that is always required.
    """
    match = _FLOOR.match(requirement)
    if match is None:
        return None
    name = match["name"]
    floor = match["version"]
    extra = f"[{needed_for}]" if needed_for else ""
    remedy = f"pip install 'seamlessflow{extra}', or scripts/setup in a checkout"
    missing = Grade.WARNING if needed_for else Grade.FAILED
    if installed is None:
        purpose = f", needed for seamlessflow{extra}" if extra else ""
        return Finding(name, missing, f"not installed{purpose}", remedy)
    exact = match["rule"] == "=="
    fits = _numbers(installed) >= _numbers(floor)
    if exact:
        fits = _numbers(installed)[: len(_numbers(floor))] == _numbers(floor)
    if fits:
        return Finding(name, Grade.OK, installed)
    return Finding(name, missing, f"{installed}, wanted {match['rule']} {floor}", remedy)


def disk(free: int, where: str) -> Finding:
    """Judge how much space is free, in bytes, in the directory for runs."""
    text = f"{free / GB:.1f} GB free in {where}"
    remedy = "free some space, or choose another directory with --out"
    if free < GB:
        return Finding("disk", Grade.FAILED, text, remedy)
    grade = Grade.WARNING if free < 5 * GB else Grade.OK
    return Finding("disk", grade, text, remedy if grade is not Grade.OK else "")


def memory(available: int) -> Finding:
    """Judge the memory, in bytes, that is available without swapping."""
    text = f"{available / GB:.1f} GB available"
    remedy = "end other programs; the demo needs about 4 GB"
    if available < 2 * GB:
        return Finding("memory", Grade.FAILED, text, remedy)
    grade = Grade.WARNING if available < 4 * GB else Grade.OK
    return Finding("memory", grade, text, remedy if grade is not Grade.OK else "")


def ports(taken: Mapping[int, str]) -> Finding:
    """Judge the usual ports: `taken` has those in use, with the process that would need them."""
    if not taken:
        return Finding("ports", Grade.OK, "the usual ones are free")
    text = ", ".join(f"{port} ({purpose}) is taken" for port, purpose in taken.items())
    return Finding(
        "ports",
        Grade.WARNING,
        text,
        "nothing, if seamlessflow chooses the ports; else set another, such as "
        "SEAMLESSFLOW_GATEWAY__PORT",
    )


def _numbers(version: str) -> tuple[int, ...]:
    """Return a version's numbers, such as (2, 13, 0) for 2.13.0+cpu."""
    return tuple(int(number) for number in _NUMBER.findall(version.split("+")[0]))


def renderer_remedy(asked: RendererSettings, renderer: str) -> str:
    """Return what to do if prompts differ from those that the model's own template gives.

    `renderer` is the name of the renderer that the settings `asked` gave.
    """
    chosen = {
        "name": asked.name not in (FROM_MODEL, CHAT_TEMPLATE),
        "thinking_retention": asked.thinking_retention is not None,
        "options": bool(asked.options),
    }
    named = [name for name, is_given in chosen.items() if is_given]
    if named:
        return f"nothing, if that is wanted; else leave {', '.join(named)} out of policy.renderer"
    if renderer != CHAT_TEMPLATE:
        return f"set policy.renderer to {{name: {CHAT_TEMPLATE}}}, the model's own template"
    return "report it with the name of the model: this template is not rendered as it should be"
