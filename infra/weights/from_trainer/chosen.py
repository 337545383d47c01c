"""Both sides of the weight transfer from the trainer, as the settings choose; they import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.weights.settings import WeightsSection

if TYPE_CHECKING:
    from seamlessflow.infra.weights.from_trainer.receiving import WeightsReceiver
    from seamlessflow.infra.weights.from_trainer.sending import WeightsService

Addresses = Callable[[str], Sequence[str]]
"""Returns the addresses of a policy's training processes."""


def weights_receiver(
    settings: WeightsSection, senders: Addresses, policy: str, data_dir: Path
) -> WeightsReceiver:
    """Return the receiver of a policy's weights. Raises `SettingsRejected` without torch."""
    try:
        from seamlessflow.infra.weights.from_trainer.receiving import WeightsReceiver
    except ImportError as error:
        raise _without(error) from error
    return WeightsReceiver(senders, policy, settings.cache(data_dir))


def weights_service(settings: WeightsSection, root: Path, host: str) -> WeightsService | None:
    """Return the running service for versions below `root`, or None if it is turned off.

    Raises `SettingsRejected` without torch, and `OSError` if it cannot listen on `host`.
    """
    if settings.from_trainer == "never":
        return None
    try:
        from seamlessflow.infra.weights.from_trainer.sending import WeightsService
    except ImportError as error:
        raise _without(error) from error
    return WeightsService(root.resolve(), host)


def _without(error: ImportError) -> SettingsRejected:
    reason = f"needs torch, which the extra seamlessflow[train] brings: {error}"
    return SettingsRejected("SEAMLESSFLOW_WEIGHTS__FROM_TRAINER", reason)
