"""Check of a model for the torch engine, which refuses some when it is built. By `config.json`."""

import json
from collections.abc import Iterator
from pathlib import Path

from infra.faults import Fault
from producers.rollout.torch_engine.limits import unsupported
from seamlessflow.config import RunConfig


def torch_engine_faults(config: RunConfig, directory: Path) -> Iterator[Fault]:
    """Yield what the torch engine, if that is to sample, cannot run of a model's directory."""
    if config.rollout.engine != "torch":
        return
    try:
        reason = unsupported(json.loads((directory / "config.json").read_bytes()))
    except (ValueError, AttributeError, TypeError) as error:
        yield Fault(("policy", "model"), f"{directory / 'config.json'} cannot be read: {error}")
        return
    if reason:
        text = f"torch cannot sample from {directory}, which {reason}; vllm may support it"
        yield Fault(("rollout", "engine"), text)
