"""Evaluation rounds that a run recorded, as sets of tasks. Pure; folded from `control`.

Called by `seamlessflow eval --compare` with a run's directory.
"""

from collections.abc import Iterable, Mapping

from seamlessflow.reports.evaluations.result import EvaluatedSet, EvaluatedTask
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.data.lengths import SessionCost


def recorded_sets(control: Iterable[Record], version: int | None) -> Mapping[str, EvaluatedSet]:
    """Return by set name the round for `version`, or each set's newest round.

    `control` is in log order. A round that is not reported yet does not count.
    """
    admitted: dict[str, r.GroupAdmitted] = {}
    ready: dict[str, r.GroupReady] = {}
    reports: dict[str, r.EvaluationCompleted] = {}
    for record in control:
        match record:
            case r.GroupAdmitted(purpose="eval"):
                admitted[record.group_id] = record
            case r.GroupReady() if record.group_id in admitted:
                ready.setdefault(record.group_id, record)
            case r.EvaluationCompleted() if version in (None, record.version):
                reports[record.split] = record
    return {
        split: EvaluatedSet(
            {
                group.task_id: _task(group.task_id, ready.get(group.group_id))
                for group in admitted.values()
                if (group.split, group.version) == (split, report.version)
            },
            report.success,
        )
        for split, report in reports.items()
    }


def _task(task_id: str, ready: r.GroupReady | None) -> EvaluatedTask:
    """Return a task with its sessions; without sessions if its group was dropped."""
    if ready is None:
        return EvaluatedTask(task_id, ())
    # Earlier releases have no prompt tokens: then the costs are not known.
    costs = zip(ready.turns, ready.lengths, ready.prompt_tokens, strict=False)
    return EvaluatedTask(task_id, ready.returns, tuple(map(SessionCost._make, costs)))
