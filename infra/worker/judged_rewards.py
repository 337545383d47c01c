"""Settings for rewards from a run's judges, which several processes share.

The manager holds a session until each judge gave its reward, and the scheduler counts that time as
the session's. The judges themselves are in `recorded/judging`.
"""

from collections.abc import Mapping

from pydantic import ConfigDict, Field

from seamlessflow.infra.settings import Section

JUDGE = "judge"
"""Source of judges' rewards, and cause of a session's end if a judge gave none."""
JUDGING = "judge"
"""Purpose of a session in which one of a run's policies judges another one."""
JUDGED = "judged"
"""Metadata in such a session that names the judged session, whose text it holds."""
JUDGE_FAILED = "judge_failed"
"""Reason with which a session and its group end without a judge's reward."""


class SharedRewardsSection(Section):
    """Judge settings that manager and scheduler need too; reward workers add their own."""

    model_config = ConfigDict(extra="ignore")

    judges: Mapping[str, object] = Field(
        default_factory=dict, description="Judges, by the names of their rewards"
    )
    wait_s: float = Field(
        600,
        gt=0,
        description="Seconds that a closed session waits for its judges. After that its group is "
        "dropped as judge_failed, and no agent runs again",
    )

    @property
    def longest_wait_s(self) -> float:
        """Longest time that a session may wait for judges; 0 without judges."""
        return self.wait_s if self.judges else 0.0
