"""The metrics of a rollout process, over all incarnations of its worker."""

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.rollout.process import Counts
from seamlessflow.producers.rollout.turns.admission import Admission
from tests.builders.records.content import ids
from tests.builders.records.prompts import generate
from tests.builders.records.sessions import completed

VERDICTS = "seamlessflow_rollout_verdicts"
FAILED = "seamlessflow_rollout_controls_failed"
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


def test_verdicts_are_counted_by_whether_they_ended_the_turn_and_rules_that_failed() -> None:
    metrics = Metrics()
    counts = Counts(metrics)
    for at in (2, 2, 1):
        counts.count_record(completed(ids(7, 8), control="budget: thinking", control_at=at))
    counts.count_record(completed(ids(7), control_error="KeyError"))
    counts.count_record(completed(ids(7)))
    families = {family.name: family.values for family in metrics.families()}
    assert families[VERDICTS] == [({"ended": "true"}, 2), ({"ended": "false"}, 1)]
    assert families[FAILED] == [({}, 1)]
