"""The reward curve for a run that was stopped before its end, from its log. It has one policy.

    python -m scripts.reward_curve OUT PNG [AFTER]

A run that ends by itself has written the curve already, as OUT/reward.png. A stopped run has no
last evaluation. So `AFTER` is its last weights' mean reward on the held-back tasks, measured apart.
"""

import argparse
from pathlib import Path

from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.kafka.whole_topic import read_topic
from seamlessflow.processes.cluster import kafka_to_audit
from seamlessflow.recorded.audit.verify import verify
from seamlessflow.reports.charts import plot_rewards
from seamlessflow.reports.reward_curve import evaluation_curves, session_facts, step_facts
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.topics import CONTROL, TRAJECTORIES


def main(arguments: list[str] | None = None) -> None:
    """Draw the curve, and print the check of the trained tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("png", type=Path)
    parser.add_argument("after", type=float, nargs="?")
    options = parser.parse_args(arguments)
    skipped = Skipped()
    with kafka_to_audit(options.out) as kafka:
        control = [item.record for item in read_topic(kafka, CONTROL, skipped)]
        records = (item.record for item in read_topic(kafka, TRAJECTORIES, skipped))
        sessions = session_facts(record for record in records if isinstance(record, Trajectory))
        checked = verify(kafka, options.out / "trained", skipped)
    rounds = [completed for curve in evaluation_curves(control).values() for completed in curve]
    before = rounds[0].reward_mean if rounds else None
    plot_rewards(step_facts(control, sessions), (before, options.after), {}, options.png)
    print(checked)
    for notice in skipped.notices:
        print(notice)


if __name__ == "__main__":
    main()
