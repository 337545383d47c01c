"""Steps executed again as the lineage that made them executed them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seamlessflow.infra.kafka.client import Received
from seamlessflow.recorded.retrain.recorded_batches import micro_batches
from seamlessflow.recorded.retrain.recorded_run import recorded_run
from seamlessflow.recorded.retrain.reexecution import Reexecution
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record, Trajectory
from seamlessflow.trainer.backends.backend import StepInput
from seamlessflow.trainer.mixing.mixed_steps import Mixing
from seamlessflow.trainer.settings import TrainerSettings
from tests.builders.records import control
from tests.builders.trainer.stub_backend import StubBackend
from tests.builders.trainer.trajectories import one_turn


class CountingBackend(StubBackend):
    """A back end that counts the tokens of each step, and takes its weights from another."""

    def __init__(self, settings: TrainerSettings, trained: list[tuple[float, int]]) -> None:
        super().__init__()
        self._rate, self._trained = settings.trainer.optimizer.lr, trained

    def train(self, step: StepInput) -> Mapping[str, float]:
        tokens = sum(len(batch) for batch in step.micro_batches)
        self._trained.append((step.learning_rate, tokens))
        self.text += f" {self._rate}"
        return {}

    def load(self, directory: Path | None, version: int) -> None:
        if directory is not None:
            self.text = (directory / "weights.safetensors").read_text()


def settings(lr: float = 1.0, **trainer: object) -> TrainerSettings:
    filters = {"zero_variance": "count", "untrainable": "count"}
    section: dict[str, Any] = {"optimizer": {"lr": lr}, "filters": filters, **trainer}
    run: dict[str, Any] = {"policy": "tiny", "lag": 0}
    return TrainerSettings(run=run, trainer=section)


def lineage(name: str, parent: str = "") -> r.LineageStarted:
    return r.LineageStarted(
        at_ms=0, policy="tiny", lineage=name, parent_lineage=parent, step=0, settings=b"{}"
    )


def step(number: int, lineage_name: str, version: int, group: str) -> list[Record]:
    members = [r.StepGroup(group_id=group, sessions=(f"{group}.0", f"{group}.1"))]
    named: dict[str, Any] = {"lineage": lineage_name, "version": version, "policy": "tiny"}
    commit = control.committed(number, members, lineage=lineage_name, version=version)
    return [commit, control.published(step=number + 1, **named)]


def sessions(group: str, version: int) -> Sequence[Trajectory]:
    return [
        one_turn(f"{group}.{n}", reward, version, group=group, sample=n, group_size=2)
        for n, reward in enumerate((0.0, 1.0))
    ]


def executed(
    log: Sequence[Record], of_lineage: Mapping[str, TrainerSettings], made: Sequence[Trajectory]
) -> tuple[list[tuple[float, int]], str]:
    """Return learning rate and tokens of each step that trained, and the weights at the end."""
    first = [lineage("a"), control.published(0, policy="tiny")]
    run = recorded_run("tiny", enumerate([*first, *log]))
    trained: list[tuple[float, int]] = []
    again = Reexecution(
        of_lineage, run, lambda trainer_settings: CountingBackend(trainer_settings, trained)
    )
    list(again.run(received(made)))
    return trained, again.backend.text


def received(made: Sequence[Trajectory]) -> Iterator[Received]:
    for offset, record in enumerate(made):
        yield Received("trajectories", 0, offset, 0, None, (), record)


def test_a_skipped_step_that_a_later_lineage_repeated_makes_its_weights_one_step_newer() -> None:
    skipped = r.StepSkipped(at_ms=0, step=1, reason="no_groups")
    resumed = [lineage("b"), *step(0, "b", 2, "g"), *step(2, "b", 3, "h")]
    log = [*step(0, "a", 1, "g"), skipped, *resumed]
    made = [*sessions("g", 0), *sessions("h", 2)]
    trained, _ = executed(log, {"a": settings(), "b": settings()}, made)
    assert [tokens for _, tokens in trained] == [6, 6]


def test_each_lineage_goes_on_with_its_own_settings_from_the_weights_before() -> None:
    log = [
        *step(0, "a", 1, "g"),
        lineage("b", "a"),
        *[control.committed(1, [_of("h")], lineage="b", parent_lineage="a", version=2)],
    ]
    made = [*sessions("g", 0), *sessions("h", 0)]
    strict, lenient = settings(lr=0.5), settings(lr=0.25, on_stale="correct")
    trained, weights = executed(log, {"a": strict, "b": lenient}, made)
    assert trained == [(0.5, 6), (0.25, 6)]
    assert weights == "w0 0.5 0.25"
    trained, _ = executed(log, {"a": strict, "b": strict}, made)
    assert [tokens for _, tokens in trained] == [6, 0]


def test_sessions_count_by_the_rewards_that_their_own_lineage_names() -> None:
    resumed = control.committed(1, [_of("h")], lineage="b", parent_lineage="a", version=2)
    log = [*step(0, "a", 1, "g"), lineage("b", "a"), resumed]
    tested = [
        replace(session, rewards=(r.Reward(name="test", value=float(session.sample)),))
        for session in sessions("h", 0)
    ]
    named = {"a": settings(), "b": settings(on_stale="correct", rewards={"test": 1.0})}
    for made in ([*tested, *sessions("g", 0)], [*sessions("g", 0), *tested]):
        trained, _ = executed(log, named, made)
        assert [tokens for _, tokens in trained] == [6, 6]


def test_the_micro_batches_of_a_step_are_counted_without_executing_the_steps_before() -> None:
    skipped = r.StepSkipped(at_ms=0, step=1, reason="no_groups")
    log = [lineage("a"), control.published(0, policy="tiny"), *step(0, "a", 1, "g"), skipped]
    run = recorded_run("tiny", enumerate([*log, *step(2, "a", 2, "h")]))
    made = [*sessions("g", 0), *sessions("h", 1)]

    def counted(number: int, tokens: int) -> int:
        lineages = {"a": settings(micro_batch_tokens=tokens, layout="padded")}
        return micro_batches(lineages, run, received(made), number, Mixing())

    assert [counted(number, 100) for number in range(3)] == [1, 0, 1]
    assert [counted(number, 2) for number in range(3)] == [2, 0, 2]


def _of(group: str) -> r.StepGroup:
    return r.StepGroup(group_id=group, sessions=(f"{group}.0", f"{group}.1"))
