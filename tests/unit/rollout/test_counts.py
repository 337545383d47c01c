"""The metrics of a rollout process, over all incarnations of its worker."""

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.rollout.counts import Counts
from seamlessflow.producers.rollout.turns.admission import Admission
from tests.builders.records.prompts import generate

IGNORED = "seamlessflow_rollout_prompts_ignored"


def test_ignored_records_are_counted_once_whichever_incarnation_ignored_them() -> None:
    metrics = Metrics()
    counts, first = Counts(metrics), Admission("w", "i1")

    def ignore(admission: Admission) -> None:
        assert not admission.admits(generate(worker="other"))

    for _ in range(3):
        ignore(first)
    counts.count_ignored(first.ignored)
    ignore(first)
    second = first.renewed("i2")
    ignore(second)
    for _ in range(2):
        counts.count_ignored(second.ignored)

    (family,) = (candidate for candidate in metrics.families() if candidate.name == IGNORED)
    assert family.values == [({"reason": "other_worker"}, 5)]
