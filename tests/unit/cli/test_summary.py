from typing import Any

import pytest

from schemas import records as r
from schemas.records import Record, Trajectory, TrajectoryNode
from seamlessflow.rewards import Returns, by_step, mean_over, terminal
from seamlessflow.summary import FIELDS, Measured, Sessions, max_staleness, summary
from seamlessflow.verify import Check
from tests.unit.cli.test_verify import file, run

CHECK = Check(7, 7, 0, 0)


def trajectory(session: str, reward: float | None, **more: Any) -> Trajectory:
    fields: dict[str, Any] = {
        "session_id": session,
        "policy": "p",
        "group_id": session.split(".")[0],
        "tokens": bytes(12),
        "logprobs": bytes(12),
        "loss_mask": bytes(3),
        "nodes": (_node(0, "prompt", 1), _node(1, "policy", 2)),
        "rewards": () if reward is None else (r.Reward(value=reward),),
        "status": "complete",
        "reason": "",
        "cause": "policy",
        "creation_version": 0,
        "turns": 2,
        "tokenizer_hash": "t",
        "partition": 0,
        "first_offset": 0,
        "last_offset": 1,
        "opened_at_ms": 0,
        "closed_at_ms": 1,
        "finalized_at_ms": 2,
        "fold_version": 1,
        **more,
    }
    return Trajectory(**fields)


def _node(number: int, origin: str, length: int) -> TrajectoryNode:
    return TrajectoryNode(
        node_id=number,
        parent=number - 1,
        parent_end=0,
        start=0,
        length=length,
        origin=origin,
        turn_id="a",
        log_offset=0,
    )


def returns(*trajectories: Trajectory) -> Returns:
    found = Returns()
    for each in trajectories:
        found.add(each)
    return found


def committed(step: int, version: int, *groups: r.StepGroup) -> r.StepCommitted:
    return r.StepCommitted(at_ms=0, step=step, lineage="l", version=version, groups=groups)


def group(name: str, *samples: int) -> r.StepGroup:
    return r.StepGroup(group_id=name, sessions=tuple(f"{name}.{sample}.0" for sample in samples))


def completed(step: int, at_ms: int = 0, **metrics: float) -> r.StepCompleted:
    return r.StepCompleted(
        at_ms=at_ms, step=step, lineage="l", version=step + 1, took_ms=1, metrics=metrics
    )


def admitted(at_ms: int, purpose: str = "train") -> r.GroupAdmitted:
    return r.GroupAdmitted(
        epoch=1,
        at_ms=at_ms,
        group_id="g",
        task_id="t",
        version=0,
        deadline_ms=9,
        purpose=purpose,
    )


def dropped(name: str, reason: str) -> r.GroupDropped:
    return r.GroupDropped(at_ms=0, group_id=name, reason=reason)


def test_a_sessions_return_is_its_terminal_reward() -> None:
    others = (r.Reward(name="style", value=9.0), r.Reward(value=8.0, scope="turn", turn_id="a"))
    judged = trajectory("g.0.0", None, rewards=(*others, r.Reward(value=0.5)))
    assert terminal(judged) == 0.5
    assert terminal(trajectory("g.0.0", None, rewards=others)) is None


def test_a_step_has_the_rewards_of_its_groups_and_of_those_filtered_out_on_the_way() -> None:
    known = returns(
        trajectory("a.0.0", 1.0),
        trajectory("a.1.0", 0.0),
        trajectory("b.0.0", 0.25),
        trajectory("c.0.0", 0.75),
        trajectory("d.0.0", 5.0),
    )
    control = [
        dropped("b", "filtered"),
        dropped("d", "stale"),
        committed(0, 1, group("a", 0, 1)),
        committed(1, 2, group("c", 0)),
    ]
    first, second = by_step(control, known)
    assert first.rewards == (1.0, 0.0, 0.25)
    assert first.mean == pytest.approx(1.25 / 3)
    assert second.rewards == (0.75,)
    assert mean_over([first, second]) == 0.5


def test_of_a_step_made_again_only_the_last_one_counts() -> None:
    known = returns(trajectory("a.0.0", 0.0), trajectory("b.0.0", 1.0))
    control = [committed(0, 1, group("a", 0)), committed(0, 2, group("b", 0))]
    [step] = by_step(control, known)
    assert (step.version, step.rewards) == (2, (1.0,))


def test_a_repeated_trajectory_counts_once() -> None:
    sessions = Sessions()
    for _ in range(2):
        sessions.add(trajectory("a.0.0", 1.0, interrupted_turns=1))
    assert (sessions.trajectories, sessions.turns, sessions.tokens_sampled) == (1, 2, 2)
    assert sessions.interrupted_turns == 1


def test_staleness_counts_optimizer_steps_not_version_numbers() -> None:
    control = [committed(0, 1), committed(1, 5), committed(2, 6)]
    trained = [
        file(run([1], versions=[1]), step=1, version=5),
        file(run([1, 2], versions=[1, 5]), step=2, version=6),
    ]
    assert max_staleness(control, trained) == 1
    assert max_staleness(control, [file(run([1], versions=[0]), step=2, version=6)]) == 2


def test_the_summary_has_all_its_fields() -> None:
    control: list[Record] = [
        admitted(500, "eval"),
        admitted(1_000),
        committed(0, 1, group("a", 0)),
        completed(0, 3_500, mismatch_max=2e-5),
        completed(1, 4_000, mismatch_max=1e-5),
    ]
    sessions = Sessions()
    sessions.add(trajectory("a.0.0", 1.0))
    measured = Measured(1.23, 0.1, 0.9, {"trainer": 100.4})
    told = summary(control, sessions, [], CHECK, measured)
    assert list(told) == list(FIELDS)
    assert (told["train_wall_s"], told["steps"], told["reward_first10"]) == (3.0, 2, 1.0)
    assert (told["eval_before"], told["eval_after"]) == (0.1, 0.9)
    assert told["peak_rss_mb"] == {"trainer": 100}
    assert told["checks"] == {
        "tokens_checked": 7,
        "mismatches": 0,
        "trained_twice": 0,
        "logprob_mismatch_max": 2e-5,
    }


def test_idle_shares_are_those_of_the_training() -> None:
    control = [usage(0, idle=1_000), admitted(1_000), usage(1_000, idle=250), completed(0, 2_000)]
    told = summary(control, Sessions(), [], CHECK, Measured())
    assert told["idle_share"] == {"w0": 0.25}


def usage(from_ms: int, idle: int) -> r.WorkerUsage:
    return r.WorkerUsage(
        at_ms=from_ms + 1_000,
        worker="w0",
        incarnation="i",
        process="rollout",
        from_ms=from_ms,
        decoding_ms=1_000 - idle,
        idle_ms=idle,
    )


def test_a_run_that_did_nothing_has_a_summary_too() -> None:
    told = summary([], Sessions(), [], Check(0, 0, 0, 0), Measured())
    assert (told["reward_first10"], told["train_wall_s"], told["steps"]) == (None, None, 0)
