"""The figures of a run, from the records it left."""

from dataclasses import replace
from typing import Any

import pytest

from seamlessflow.processes.usage import ProcessLoad
from seamlessflow.recorded.audit.verify import Verification
from seamlessflow.reports.reward_curve import SessionFacts, mean_reward, session_facts, step_facts
from seamlessflow.reports.summary import LauncherFacts, summary
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from seamlessflow.trainer.metrics.phases import PHASES
from tests.builders.records import control
from tests.builders.trainer.trajectories import Run, trajectory

FIELDS = [
    "reward_first10",
    "reward_last10",
    "edge_steps",
    "rewards",
    "eval_before",
    "eval_after",
    "evaluations",
    "sources",
    "steps",
    "trajectories",
    "turns",
    "ended_at",
    "tokens_sampled",
    "tokens_trained",
    "tokens_masked",
    "tokens_over_age",
    "groups_left_out",
    "lengths",
    "role_switches",
    "max_staleness",
    "interrupted_turns_continued",
    "warmup_s",
    "train_wall_s",
    "paused_s",
    "idle_share",
    "device_time",
    "step_s",
    "ideal_step_s",
    "phases",
    "tokens_per_s",
    "restarts",
    "peak_rss_mb",
    "processors",
    "checks",
    "logprob_mismatch_max",
]
MEASURED = LauncherFacts(
    restarts={"gateway": 2},
    eval_before=0.1,
    eval_after=0.9,
    warmup_s=5.5,
    peak_rss_mb={"trainer": 612.34},
    loads={"trainer": ProcessLoad(1.25, 0.5)},
)
WITHOUT_WORKERS: dict[str, object] = {"idle_share": {}, "device_time": {}, "ideal_step_s": {}}
WITHOUT_WORKERS |= {"step_s": None, "phases": {}, "tokens_per_s": None, "rewards": {}}
WITHOUT_WORKERS |= {"evaluations": {}, "sources": {}}
FIRST_STEP: dict[str, float] = {"tokens_trained": 20, "tokens_over_age": 3, "staleness_max": 0}
FIRST_STEP |= {"masked/stale": 3, "masked/eval": 1, "filtered/zero_variance": 0.5}


def committed(step: int, *sessions: str, **changes: Any) -> Record:
    group = r.StepGroup(group_id=f"g-{step}", sessions=sessions)
    return control.committed(step, [group], **changes)


def ready(group: str, *sessions: str) -> r.GroupReady:
    return control.ready(group, sessions=sessions)


def admitted(at_ms: int, purpose: str = "train") -> r.GroupAdmitted:
    return control.admitted(at_ms=at_ms, purpose=purpose)


def facts(reward: float | None, purpose: str = "train") -> SessionFacts:
    return SessionFacts(
        purpose=purpose, reward=reward, turns=2, tokens_sampled=14, interrupted_turns=1
    )


def test_the_share_of_sessions_that_a_limit_ended_is_reported() -> None:
    ended = [replace(facts(0.0), limit=limit) for limit in ("", "", "time", "context")]
    sessions = {str(number): session for number, session in enumerate(ended)}
    report = summary([], sessions, LauncherFacts(), None)
    assert report["ended_at"] == {"context": 0.25, "time": 0.25}


def rewards(log: list[Record], **earned: float | None) -> list[tuple[float | None, ...]]:
    sessions = {name: facts(reward) for name, reward in earned.items()}
    return [step.rewards for step in step_facts(log, sessions)]


def dropped(log: list[Record], **earned: float | None) -> list[tuple[float | None, ...]]:
    sessions = {name: facts(reward) for name, reward in earned.items()}
    return [step.dropped_rewards for step in step_facts(log, sessions)]


def test_a_trajectory_says_what_its_session_earned_and_sampled() -> None:
    runs = [
        Run([1, 2], "prompt"),
        Run([3, 4, 5], parent=0, parent_end=2),
        Run([6], "tool", turn="t1", parent=1, parent_end=3),
        Run([7], turn="t1", parent=2, parent_end=1, trained=False),
    ]
    [(name, session)] = session_facts([trajectory(runs, session="s", reward=0.5)]).items()

    assert (name, session.purpose, session.reward) == ("s", "train", 0.5)
    assert session.tokens_sampled == 4


def test_a_trajectory_that_is_repeated_counts_once() -> None:
    first, again = (trajectory([Run([1])], session="s", reward=value) for value in (1.0, 0.0))
    assert session_facts([first, again])["s"].reward == 1.0


def test_a_step_has_the_rewards_of_all_sessions_of_its_groups() -> None:
    log = [committed(0, "a", "b"), committed(1, "c")]
    assert rewards(log, a=0.0, b=1.0, c=0.25) == [(0.0, 1.0), (0.25,)]


def test_groups_that_a_filter_dropped_stand_beside_the_step_they_were_picked_for() -> None:
    log = [
        committed(0, "a"),
        ready("x", "b", "c"),
        control.dropped("x", "filtered"),
        ready("y", "d"),
        control.dropped("y", "stale"),
        committed(1, "e"),
        committed(2, "f"),
    ]
    earned: dict[str, float | None] = {"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.0, "e": 0.5, "f": 0.5}
    assert rewards(log, **earned) == [(0.0,), (0.5,), (0.5,)]
    assert dropped(log, **earned) == [(), (1.0, 1.0), ()]


def test_the_reward_of_steps_is_that_of_their_metrics_and_beside_it_that_of_all_sampled() -> None:
    log = [ready("x", "b"), control.dropped("x", "filtered"), committed(0, "a"), committed(1, "c")]
    sessions = {"a": facts(1.0), "b": facts(0.0), "c": facts(1.0)}
    report = summary(log, sessions, LauncherFacts(), None)
    assert (report["reward_first10"], report["reward_last10"]) == (1.0, 1.0)
    assert report["reward_sampled"] == {"first10": 0.5, "last10": 1.0}
    assert "reward_sampled" not in summary(log[2:], sessions, LauncherFacts(), None)


def test_groups_that_a_filter_dropped_before_a_skipped_step_count_for_none() -> None:
    skipped = control.skipped(reason="no_trainable_tokens")
    log = [ready("x", "a"), control.dropped("x", "filtered"), skipped, committed(1, "b")]
    assert rewards(log, a=0.0, b=1.0) == [(1.0,)]
    assert dropped(log, a=0.0, b=1.0) == [()]


def test_a_step_done_again_counts_once_with_what_its_filter_had_dropped() -> None:
    log = [
        ready("x", "a"),
        control.dropped("x", "filtered"),
        committed(0, "b", version=1),
        control.completed(0, at_ms=5, metrics={"loss": 1.0}),
        committed(0, "b", version=2, lineage="m"),
        control.completed(0, at_ms=9, metrics={"loss": 2.0}, version=2, lineage="m"),
    ]
    [step] = step_facts(log, {"a": facts(0.0), "b": facts(1.0)})

    assert (step.version, step.rewards, step.at_ms) == (2, (1.0,), 9)
    assert step.dropped_rewards == (0.0,)
    assert step.metrics == {"loss": 2.0}


def test_a_mean_is_over_sessions_not_over_steps() -> None:
    steps = step_facts(
        [committed(0, "a"), committed(1, "b", "c", "d")],
        {"a": facts(1.0), "b": facts(0.0), "c": facts(0.0), "d": facts(0.0)},
    )
    assert mean_reward(steps) == 0.25
    assert [step.reward for step in steps] == [1.0, 0.0]


def test_a_mean_is_not_known_where_a_reward_is_not() -> None:
    steps = step_facts([committed(0, "a", "b")], {"a": facts(1.0)})
    assert mean_reward(steps) is None
    assert mean_reward([]) is None


def test_the_first_and_the_last_ten_steps_are_told() -> None:
    log = [committed(step, f"s{step}") for step in range(25)]
    sessions = {f"s{step}": facts(float(step)) for step in range(25)}

    report = summary(log, sessions, LauncherFacts(), None)

    assert (report["reward_first10"], report["reward_last10"]) == (4.5, 19.5)
    assert (report["steps"], report["edge_steps"]) == (25, 10)


@pytest.mark.parametrize(
    ("steps", "first", "last", "size"),
    [
        (1, 0.0, None, 1),
        (2, 0.0, 1.0, 1),
        (3, 0.0, 2.0, 1),
        (12, 2.5, 8.5, 6),
        (19, 4.0, 14.0, 9),
        (20, 4.5, 14.5, 10),
    ],
)
def test_no_step_is_among_the_first_and_the_last(
    steps: int, first: float, last: float | None, size: int
) -> None:
    log = [committed(step, f"s{step}") for step in range(steps)]
    sessions = {f"s{step}": facts(float(step)) for step in range(steps)}
    report = summary(log, sessions, LauncherFacts(), None)
    figures = report["reward_first10"], report["reward_last10"], report["edge_steps"]
    assert figures == (first, last, size)


def test_every_figure_of_a_run() -> None:
    log: list[Record] = [
        control.claimed(),
        admitted(500, "eval"),
        admitted(1_000),
        committed(0, "a"),
        control.completed(0, at_ms=3_000, metrics=FIRST_STEP),
        committed(1, "b"),
        control.completed(
            1, at_ms=4_500, metrics={"tokens_trained": 8, "staleness_max": 1, "mismatch_max": 2e-5}
        ),
    ]
    sessions = {
        "a": facts(0.0),
        "b": replace(facts(1.0), masked={"inexact_json_schema": 5}),
        "never trained": replace(facts(0.0), masked={"inexact_json_schema": 2, "cut": 1}),
        "e": replace(facts(1.0, "eval"), masked={"eval": 9}),
    }
    checked = Verification(tokens_checked=28, mismatches=0, trained_twice=0)

    report = summary(log, sessions, MEASURED, checked)

    assert report == {
        **{"reward_first10": 0.0, "reward_last10": 1.0, "edge_steps": 1},
        "eval_before": 0.1,
        "eval_after": 0.9,
        "steps": 2,
        "trajectories": 3,
        "turns": 6,
        "ended_at": {},
        "tokens_sampled": 42,
        "tokens_trained": 28,
        "tokens_masked": {"stale": 3, "eval": 1, "inexact_json_schema": 7, "cut": 1},
        "groups_left_out": {"zero_variance": 0.25},
        "lengths": {},
        "role_switches": 0,
        "max_staleness": 1,
        "tokens_over_age": 3,
        "interrupted_turns_continued": 3,
        "warmup_s": 5.5,
        **{"train_wall_s": 3.5, "paused_s": 0.0},
        **WITHOUT_WORKERS,
        "step_s": 1.75,
        "restarts": {"gateway": 2},
        "peak_rss_mb": {"trainer": 612.3},
        "processors": {"trainer": {"computed": 1.25, "waited": 0.5}},
        "checks": {"tokens_checked": 28, "mismatches": 0, "trained_twice": 0},
        "logprob_mismatch_max": 2e-5,
    }
    assert list(report) == FIELDS


def test_steps_of_a_lost_lineage_are_in_no_figure() -> None:
    log: list[Record] = [
        committed(0, "a"),
        control.completed(
            0, metrics={"tokens_trained": 100, "staleness_max": 7, "mismatch_max": 1.0}
        ),
        committed(0, "a", version=2, lineage="m"),
        control.completed(
            0,
            version=2,
            lineage="m",
            metrics={"tokens_trained": 10, "staleness_max": 0, "mismatch_max": 1e-6},
        ),
    ]
    report = summary(log, {"a": facts(1.0)}, LauncherFacts(), None)

    assert (report["steps"], report["tokens_trained"], report["max_staleness"]) == (1, 10, 0)
    assert report["logprob_mismatch_max"] == 1e-6


@pytest.mark.parametrize("log", [[], [committed(0, "a")]], ids=["nothing", "not completed"])
def test_what_is_not_known_is_null(log: list[Record]) -> None:
    report = summary(log, {}, LauncherFacts(), None)

    unknown = {name for name, value in report.items() if value is None}
    assert unknown == {
        "reward_first10",
        "reward_last10",
        "eval_before",
        "eval_after",
        "tokens_trained",
        "max_staleness",
        "tokens_over_age",
        "warmup_s",
        "train_wall_s",
        "step_s",
        "tokens_per_s",
        "logprob_mismatch_max",
    }
    assert report["checks"] == {"tokens_checked": None, "mismatches": None, "trained_twice": None}


def test_a_training_of_recorded_sessions_lasts_from_its_first_step() -> None:
    log = [control.started(["w"], at_ms=500), control.completed(0, at_ms=2_500)]
    assert summary(log, {}, LauncherFacts(), None)["train_wall_s"] == 2


def test_the_start_of_a_trainer_is_no_time_of_a_step() -> None:
    phases = dict.fromkeys(PHASES, 0.0) | {"update_s": 0.5, "tokens_trained": 100.0}
    log: list[Record] = [
        admitted(1_000),
        committed(0, "a"),
        control.completed(0, at_ms=3_000, metrics=phases | {"batch_s": 39.0}),
        committed(1, "b"),
        control.completed(1, at_ms=5_000, metrics=phases | {"batch_s": 1.4}),
    ]
    report = summary(log, {}, LauncherFacts(), None)
    assert report["phases"]["batch_s"] == pytest.approx((1.5 + 1.4) / 2)
    assert report["tokens_per_s"] == pytest.approx(200 / (2 + 1.9), abs=0.1)


def test_a_pause_of_the_run_is_in_no_figure_but_its_own() -> None:
    hour = 3_600_000
    new: dict[str, Any] = {"lineage": "b"}
    log: list[Record] = [
        control.claimed(),
        admitted(0),
        control.joined("w", at_ms=0),
        control.acquired("w", at_ms=0),
        committed(0, "a"),
        control.completed(0, at_ms=1_000),
        control.usage("w", from_ms=0, at_ms=1_000, decoding_ms=1_000, full_batch_ms=1_000),
        control.claimed(2, at_ms=hour),
        r.LineageStarted(at_ms=hour, policy="", step=1, settings=b"{}", **new),
        control.completed(1, at_ms=hour + 500, **new),
    ]
    report = summary(log, {}, LauncherFacts(), None)
    assert (report["train_wall_s"], report["paused_s"]) == (1.5, 3_599.0)
    assert (report["step_s"], report["idle_share"]) == (0.75, {"w": 0.0})


def test_device_time_is_that_of_the_training() -> None:
    log: list[Record] = [
        control.joined("w", at_ms=0),
        control.acquired("w", at_ms=0),
        admitted(1_000),
        control.usage(decoding_ms=1_500, full_batch_ms=500, idle_ms=500, from_ms=900, at_ms=2_900),
        committed(0, "a"),
        control.completed(0, at_ms=2_500),
    ]
    report = summary(log, {}, LauncherFacts(), None)

    assert report["idle_share"] == {"w": 0.75}
    assert {name: share for name, share in report["device_time"].items() if share} == {
        "decoding": 0.25,
        "under_filled": 0.5,
        "waiting": 0.25,
    }
    assert (report["step_s"], report["ideal_step_s"]) == (1.5, {"work": 0.375, "latency": 0.0})
