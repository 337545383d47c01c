"""Places in the repository that tests start programs in or read from."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
CODEX_REQUEST = ROOT / "tests" / "builders" / "gateway" / "codex_request.json"
"""A request of a real Codex, as it came over HTTP."""
HARD_NAMES = (
    "with space",
    " first and last ",
    "ü ñ",
    "日本😀",
    "50% %41 %20",
    "#hash?query",
    "back\\slash\\u0041",
    "a,b",
    "a:b::c",
    "~home$HOME",
    "[red]*{x}'\"",
    "two\nlines",
    "n" * 200,
)
"""Names of directories that some program takes for something else."""
