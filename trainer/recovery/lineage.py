"""The record of a lineage: all that is needed to execute its steps again, elsewhere or later."""

from collections.abc import Mapping
from typing import Any

import orjson

from seamlessflow.schemas.records import LineageStarted
from seamlessflow.schemas.releases import releases
from seamlessflow.trainer.backends.backend import Machine
from seamlessflow.trainer.recovery.resume import Resume
from seamlessflow.trainer.settings import TrainerSettings

SECTIONS = ("run", "pacing", "policy", "trainer")
"""Sections of the settings that decide what a step computes."""


def recorded_sections(settings: TrainerSettings) -> Mapping[str, Any]:
    """Return these sections as JSON holds them; none has a secret."""
    return settings.model_dump(mode="json", include=set(SECTIONS))


def lineage_started(
    settings: TrainerSettings, resume: Resume, machine: Machine, at_ms: int
) -> LineageStarted | None:
    """Return the record for `control`; None while an earlier release is written, which lacks it."""
    if settings.kafka.write_release is not None:
        return None
    return LineageStarted(
        at_ms=at_ms,
        policy=settings.run.policy,
        lineage=resume.lineage,
        parent_lineage=resume.origin.lineage,
        step=resume.origin.step,
        settings=orjson.dumps(recorded_sections(settings)),
        ranks=settings.trainer.ranks,
        threads=machine.threads,
        torch=machine.torch,
        device=machine.device,
        release=releases()[-1].version,
    )
