"""Groups in the batches of committed steps, at any moment."""

from seamlessflow.console.models.training import CHOSEN, FILTERED, GroupTraining
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.console.course import lineage
from tests.builders.console.memory_log import history_of, items_of
from tests.builders.records import control


def training_of(*records: Record) -> GroupTraining:
    history, _ = history_of(items_of("control", records))
    return history.course.training


def group(**changes: object) -> r.StepGroup:
    return r.StepGroup(group_id="g", sessions=("g.0", "g.1"), **changes)  # type: ignore[arg-type]


def committed(step: int = 0, batch: r.StepGroup | None = None, **changes: object) -> Record:
    tokens = {"g.0": 5, "g.1": 0}
    return control.committed(
        step, [batch or group()], trained_tokens=tokens, policy="policy", **changes
    )


def test_a_batch_has_the_sessions_that_its_step_trained_and_those_that_it_left_out() -> None:
    (batch,) = training_of(control.claimed(), committed(3)).batches("g", 2)
    assert (batch.step, batch.trained, batch.left) == (3, ("g.0",), ("g.1",))


def test_a_batch_is_there_from_its_commit_on() -> None:
    training = training_of(control.claimed(), committed(0), committed(1))
    assert [len(training.batches("g", end)) for end in range(4)] == [0, 0, 1, 2]
    assert training.batches("another", 3) == []


def test_the_rule_of_a_batch_is_its_filter_or_the_choice_of_its_sessions() -> None:
    filtered = group(filtered="zero_variance")
    replaced = group(replaced=(r.ReplacedSession(session_id="g.2", by="h.0", pool="p"),))
    chosen = r.StepMethod(kind="selection", name="largest")
    commits = [
        committed(0),
        committed(1, filtered),
        committed(2, replaced),
        committed(3, methods=(chosen,)),
    ]
    batches = training_of(*commits).batches("g", 4)
    assert [batch.rule for batch in batches] == ["", FILTERED, CHOSEN, CHOSEN]
    assert batches[2].left == ("g.1", "g.2")


def test_a_trainer_that_begins_again_undoes_the_step_from_its_start_on() -> None:
    training = training_of(committed(4), lineage("b", "a", 5), lineage("c", "b", 4))
    (batch,) = training.batches("g", 3)
    assert [training.survives(batch, end) for end in (1, 2, 3)] == [True, True, False]


def test_a_session_has_failed_from_its_record_on() -> None:
    training = training_of(control.claimed(), control.sample_failed("g", 1, 2))
    assert [training.has_failed("g", 1, 2, end) for end in (1, 2)] == [False, True]
    assert not training.has_failed("g", 1, 1, 2)
