"""What the doctor says: findings, and the pure rules that make them.

`doctor.py` gathers the facts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

GB = 1_000_000_000
_NUMBER = re.compile(r"\d+")
_FLOOR = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)\s*(?P<rule>>=|==)\s*(?P<version>[0-9][0-9.]*)")


class Grade(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Finding:
    """One check; `remedy` says what to do where it is not ok."""

    what: str
    grade: Grade
    detail: str
    remedy: str = ""


def failed(findings: list[Finding]) -> bool:
    """Whether something has to be done before anything can run."""
    return any(finding.grade is Grade.FAILED for finding in findings)


def python(version: tuple[int, int]) -> Finding:
    """The interpreter."""
    text = ".".join(map(str, version))
    if version >= (3, 11):
        return Finding("Python", Grade.OK, text)
    return Finding("Python", Grade.FAILED, text, "install Python 3.11 or newer")


def package(requirement: str, installed: str | None, needed_for: str) -> Finding | None:
    """A package against a requirement of this project; None for one without a floor.

    `needed_for` is the extra that asks for it, empty for the base.
    """
    match = _FLOOR.match(requirement)
    if match is None:
        return None
    name, floor = match["name"], match["version"]
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
    """Free space in bytes where a run is kept."""
    text = f"{free / GB:.1f} GB free in {where}"
    remedy = "free some space, or choose another directory with --out"
    if free < GB:
        return Finding("disk", Grade.FAILED, text, remedy)
    grade = Grade.WARNING if free < 5 * GB else Grade.OK
    return Finding("disk", grade, text, remedy if grade is not Grade.OK else "")


def memory(available: int) -> Finding:
    """Memory in bytes that can be had without swapping."""
    text = f"{available / GB:.1f} GB available"
    remedy = "end other programs; the demo needs about 4 GB"
    if available < 2 * GB:
        return Finding("memory", Grade.FAILED, text, remedy)
    grade = Grade.WARNING if available < 4 * GB else Grade.OK
    return Finding("memory", grade, text, remedy if grade is not Grade.OK else "")


def ports(taken: Mapping[int, str]) -> Finding:
    """Ports of this machine that somebody else uses, with what they are wanted for."""
    if not taken:
        return Finding("ports", Grade.OK, "the usual ones are free")
    text = ", ".join(f"{port} ({purpose}) is taken" for port, purpose in taken.items())
    return Finding(
        "ports",
        Grade.WARNING,
        text,
        "nothing, where seamlessflow chooses the ports; else set another, such as "
        "SEAMLESSFLOW_GATEWAY__PORT",
    )


def _numbers(version: str) -> tuple[int, ...]:
    """2.13.0+cpu as (2, 13, 0)."""
    return tuple(int(number) for number in _NUMBER.findall(version.split("+")[0]))
