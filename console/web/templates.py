"""Page templates: the only file in the console that imports Jinja2.

Each text that a template prints is escaped. Before that, control codes, marks that turn a line's
direction and lone surrogates become visible signs. So text that agents and models wrote moves
nothing on the page.
"""

from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from seamlessflow.infra.printable import printable
from seamlessflow.lab.timeline.page import FILES as TIMELINE_FILES

FOLDER = Path(str(files(__package__) / "pages"))
_WHOLE = 999.5
_HUGE = 1e9
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def environment() -> Environment:
    """Return the environment in which all pages are rendered."""
    made = Environment(
        loader=FileSystemLoader([FOLDER, str(TIMELINE_FILES)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"clock": clock, "day": day, "lasting": lasting, "number": number, "size": size}
    made.filters |= {"share": share, "reward": reward, "signed": signed}
    made.filters |= {"url": url, "verbatim": Markup}
    return made


def shown(value: Any) -> Any:
    """Return a text that is safe to show, an empty one for None, and other values as they are."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value.encode(errors="backslashreplace").decode())
    return value


def clock(at_ms: int | None) -> str:
    """Return a UTC time of day."""
    if not at_ms:
        return ""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%H:%M:%S}.{at_ms % 1000:03}"


def day(at_ms: int | None) -> str:
    """Return a UTC date and time."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}" if at_ms else ""


def lasting(ms: float | None) -> str:
    """Return a time span, for example 46 ms, 3.2 s or 4 min 10 s."""
    if ms is None:
        return ""
    if 0 < ms < 100:
        return f"{ms:.0f} ms"
    seconds = max(0.0, ms / 1000)
    if seconds < 100:
        return f"{seconds:.1f} s"
    for unit_s, name in _UNITS:
        if seconds >= unit_s:
            whole, rest = divmod(round(seconds), unit_s)
            below = {"d": (3_600, "h"), "h": (60, "min"), "min": (1, "s")}[name]
            return f"{whole} {name} {rest // below[0]} {below[1]}"
    return f"{seconds:.0f} s"


def number(value: float | None) -> str:
    """Return a number with thousands separators."""
    return "" if value is None else f"{value:,.0f}"


def size(value: int) -> str:
    """Return a byte count with its unit."""
    if value < 1_000:
        return f"{value} B"
    return f"{value / 1_000:,.1f} kB" if value < 1_000_000 else f"{value / 1_000_000:,.1f} MB"


def share(value: float | None) -> str:
    """Return a share in per cent."""
    return "" if value is None else f"{value:.0%}"


def reward(value: float | None) -> str:
    """Return a reward, or another figure of a step."""
    return "" if value is None else _figure(value)


def signed(value: float | None) -> str:
    """Return a difference with its sign."""
    if not value:
        return "" if value is None else "0"
    return _figure(value, "+")


def _figure(value: float, sign: str = "") -> str:
    """Return three digits, and all digits before the point."""
    return f"{value:{sign},.0f}" if _WHOLE <= abs(value) < _HUGE else f"{value:{sign}.3g}"


def url(path: str, **parts: Any) -> str:
    """Return a path with the query parts that are not empty."""
    query = {name: str(value) for name, value in parts.items() if value not in (None, "")}
    encoded = urlencode(query, errors="backslashreplace")
    return f"{path}?{encoded}" if encoded else path
