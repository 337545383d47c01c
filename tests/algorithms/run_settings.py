"""Settings of a run of the table, on the game Trail. Called by `table.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.algorithms.trail_run import Values, trail_run

STEPS = 4
GROUPS, GROUP_SIZE = 4, 4
CHECKPOINT_EVERY = 2
TEACHER = "TEACHER"
"""Stands for the directory of a model with other weights and the same tokenizer."""
INITIAL = "INITIAL"
"""Stands for the directory of the initial model."""
MINE = "mine_"
"""Begin of the name of a copy of an example's module."""
FEW = "FEW"
"""Stands for a file with as many tasks as a step has groups, so that each comes again."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A short training: settings that differ from those that all share."""

    trainer: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    """Other sections."""
    metrics: tuple[str, ...] = ()
    """Metrics that some step must have, besides those of `promises.py`."""
    symptoms: tuple[str, ...] = ()
    """Texts in symptoms that belong to the settings; any other is a fault."""
    noisy: tuple[str, ...] = ()
    """Processes whose settings make them warn."""
    ranks: int = 1
    deleted: tuple[str, ...] = ()
    """Modules of `examples/methods` of which the run has copies of its own (`MINE`). They are
    deleted once it has ended, before it is audited and executed again."""

    def values(self, out: Path, data: Path, teacher: Path) -> Values:
        """Return its configuration, on the model and tasks in `data`."""
        few = str(data / "tasks" / "few.jsonl")
        places = {TEACHER: str(teacher), INITIAL: str(data / "model"), FEW: few}
        changes: dict[str, Any] = {
            "run": {
                "steps": STEPS,
                "groups_per_step": GROUPS,
                "group_size": GROUP_SIZE,
                **self.run,
            },
            "trainer": {"checkpoint_every": CHECKPOINT_EVERY, **_placed(self.trainer, places)},
            **_placed(self.more, places),
        }
        if self.ranks > 1:
            changes["workers"] = [
                {"id": f"w{rank}", "tags": ["rollout", "train"]} for rank in range(self.ranks)
            ]
            gang = {"ranks": self.ranks}
            changes["trainer"] |= {"backend": "fsdp2", **gang}
        return trail_run(out, data, changes)


def drawn_by(
    name: str,
    terms: Mapping[str, Any] | None = None,
    functions: Mapping[str, Any] | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Return the section of a run that draws its tasks so."""
    sampler = {"name": name, **settings}
    return {"pacing": {"sampler": sampler, "terms": terms or {}, "functions": functions or {}}}


def stopped_by(name: str, settings: Mapping[str, Any], **more: Any) -> WholeRun:
    """Return a run whose turns a rule ends."""
    rollout = {"control": {"name": name, "settings": settings, "exempt": 0.25, **more}}
    symptoms = ("ended at a limit", "were exempt", "have equal rewards")
    return WholeRun({}, {}, {"rollout": rollout}, (), symptoms)


def _placed(values: Mapping[str, Any], places: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: _placed(value, places)
        if isinstance(value, Mapping)
        else places.get(value, value)
        if isinstance(value, str)
        else value
        for name, value in values.items()
    }
