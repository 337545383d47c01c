"""Places in the repository that tests start programs in or read from."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
CODEX_REQUEST = ROOT / "tests" / "builders" / "gateway" / "codex_request.json"
"""A request of a real Codex, as it came over HTTP."""
