"""Choices of a loss that settings name. Importable without torch or numpy."""

from typing import Literal

Unit = Literal["token", "turn", "session", "group"]
"""Trained tokens that a loss looks at together, so that they must be in one micro-batch."""
