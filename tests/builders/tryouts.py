"""The command `seamlessflow environments doctor`, and what it printed."""

import json
from typing import Any

from typer.testing import CliRunner, Result

from seamlessflow.__main__ import app


def doctor(*arguments: str) -> Result:
    """Return how the command with these arguments ended."""
    return CliRunner().invoke(app, ["environments", "doctor", *arguments])


def facts(result: Result, status: int) -> dict[str, Any]:
    """Return the facts that the command prints; fail with what it raised instead."""
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return dict(json.loads(result.stdout))


def grades(seen: dict[str, Any]) -> dict[str, str]:
    """Return the grade of each finding by what it is about."""
    return {finding["what"]: finding["grade"] for finding in seen["findings"]}


def warned(seen: dict[str, Any]) -> dict[str, str]:
    """Return the words of each finding that is not ok by what it is about."""
    return {
        finding["what"]: finding["detail"]
        for finding in seen["findings"]
        if finding["grade"] != "ok"
    }
