"""The metrics of a rollout process."""

from collections import Counter

from seamlessflow.infra.telemetry.metrics import Metrics
from seamlessflow.producers.rollout.turns.admission import Ignored
from seamlessflow.producers.rollout.turns.dispatch import DispatchOutput
from seamlessflow.schemas.records import TurnCompleted, TurnFailed, TurnInterrupted
from seamlessflow.schemas.tokens import TOKEN_BYTES


class Counts:
    """The counters of a rollout process. Main loop only."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._tokens = metrics.counter("seamlessflow_rollout_tokens_total")

    def count_record(self, record: DispatchOutput) -> None:
        """Count a record of a turn that was sent to the log."""
        if not isinstance(record, TurnFailed):
            self._tokens.inc(len(record.token_ids) // TOKEN_BYTES)
        match record:
            case TurnCompleted():
                self._left("completed", record.finish_reason)
                self._count_control(record)
            case TurnInterrupted():
                self._left("interrupted", record.reason)
            case TurnFailed():
                self._left("failed", record.reason)

    def count_lost(self) -> None:
        """Count a record that could not be delivered."""
        self._metrics.counter("seamlessflow_rollout_records_lost_total").inc()

    def count_ignored(self, ignored: Counter[Ignored]) -> None:
        """Count ignored records of the slot, by reason, and take them from `ignored`."""
        while ignored:
            reason, count = ignored.popitem()
            self._metrics.counter("seamlessflow_rollout_prompts_ignored_total", reason=reason).inc(
                count
            )

    def _count_control(self, record: TurnCompleted) -> None:
        if record.control:
            end = record.token_offset + len(record.token_ids) // TOKEN_BYTES
            ended = "true" if record.control_at == end else "false"
            name = "seamlessflow_rollout_verdicts_total"
            self._metrics.counter(name, ended=ended).inc()
        if record.control_error:
            self._metrics.counter("seamlessflow_rollout_controls_failed_total").inc()

    def _left(self, outcome: str, reason: str) -> None:
        self._metrics.counter(
            "seamlessflow_rollout_turns_total", outcome=outcome, reason=reason
        ).inc()
