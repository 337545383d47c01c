"""The figures of a run of several policies."""

from seamlessflow.reports.reward_curve import SessionFacts
from seamlessflow.reports.summary import LauncherFacts, of_policy, policy_figures, summary
from seamlessflow.schemas import records as r
from seamlessflow.schemas.records import Record
from tests.builders.records import control


def facts(reward: float) -> SessionFacts:
    return SessionFacts(
        purpose="train", reward=reward, turns=2, tokens_sampled=14, interrupted_turns=0
    )


def test_each_policy_has_the_time_of_its_own_steps() -> None:
    ends = [("first", 300), ("second", 700), ("first", 500), ("second", 1_300)]
    steps = [control.completed(policy=name, at_ms=at_ms) for name, at_ms in ends]
    records: list[Record] = [control.admitted("g", at_ms=100), *steps]
    policies = {
        name: policy_figures(of_policy(records, name), {}) for name in ("first", "second", "x")
    }
    assert [policy["step_s"] for policy in policies.values()] == [0.2, 0.6, None]


def test_tokens_and_steps_of_all_policies_count() -> None:
    log: list[Record] = [control.admitted("g", at_ms=0)]
    for number, name in enumerate(("first", "second", "second")):
        metrics = {"tokens_trained": 10 * (number + 1), "staleness_max": number}
        group = r.StepGroup(group_id=f"g{number}", sessions=(f"s{number}",))
        log.append(control.committed(number, [group], policy=name))
        at_ms = 1_000 * (number + 1)
        log.append(control.completed(number, at_ms=at_ms, policy=name, metrics=metrics))
    earned = enumerate((1.0, 0.0, 0.0))
    sessions = {f"s{number}": facts(reward) for number, reward in earned}

    report = summary(log, sessions, LauncherFacts(), None, ("first", "second"))

    assert (report["steps"], report["tokens_trained"], report["max_staleness"]) == (3, 60, 2)
    assert (report["step_s"], report["train_wall_s"], report["reward_first10"]) == (1.0, 3.0, 1.0)
    assert [policy["tokens_trained"] for policy in report["policies"].values()] == [10, 50]
