"""Returns of a run's steps, as each policy weighs the named rewards."""

from dataclasses import replace

from seamlessflow.reports.reward_curve import session_facts
from seamlessflow.reports.summary import LauncherFacts, summary
from seamlessflow.schemas import records as r
from tests.builders.records import control
from tests.builders.trainer.trajectories import Run, trajectory


def test_each_policy_has_returns_by_its_own_weights() -> None:
    record = replace(
        trajectory([Run([1])], session="a"), rewards=(r.Reward(name="test", value=2.0),)
    )
    sessions = session_facts([record], {"test": 1.0}, {"coder": {"test": 0.5}})
    group = r.StepGroup(group_id="g", sessions=("a",))
    log = [control.committed(0, [group], policy=name) for name in ("planner", "coder")]
    report = summary(log, sessions, LauncherFacts(), None, ("planner", "coder"))
    assert report["reward_first10"] == 2.0
    firsts = {name: policy["reward_first10"] for name, policy in report["policies"].items()}
    assert firsts == {"planner": 2.0, "coder": 1.0}


def test_named_rewards_are_told_where_there_are_several() -> None:
    def summarized(*steps: dict[str, float]) -> object:
        log: list[r.Record] = []
        for number, metrics in enumerate(steps):
            log += [control.committed(number, []), control.completed(number, metrics=metrics)]
        return summary(log, {}, LauncherFacts(), None)["rewards"]

    rewards = {"reward/test": 0.25, "reward/test/p50": 9.0, "reward_of/agent": 1.0}
    assert summarized(rewards) == {}
    assert summarized(*[{**rewards, "reward/format": float(step)} for step in range(12)]) == {
        "test": {"first10": 0.25, "last10": 0.25},
        "format": {"first10": 2.5, "last10": 8.5},
    }
