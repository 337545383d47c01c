"""An audit of a log: once, or round by round while the system runs.

It reads like any other observer: it commits nothing and writes no dead letters. Called by
`seamlessflow audit` and by tests that kill processes.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from seamlessflow.consumers.trajectories.settings import ManagerSection
from seamlessflow.infra.clock import Stopping, never
from seamlessflow.infra.errors import KafkaUnavailable
from seamlessflow.infra.kafka import log
from seamlessflow.infra.kafka.unreadable import Skipped
from seamlessflow.infra.settings import KafkaSettings, ProcessSettings
from seamlessflow.recorded.audit.auditor import Auditor, AuditReport
from seamlessflow.recorded.audit.recording import RecordingRounds, recorded_source
from seamlessflow.recorded.audit.rounds import Rounds
from seamlessflow.recorded.audit.stored import stored_sessions

EVERY_S = 2.0
_MARKS_S = 0.5
"""Time in which all partitions in a transaction get the mark that ends it."""
_MOST_TOKENS = 20_000_000
"""Most tokens that a following audit holds from finalized sessions: some 300 MB."""
_log = log.logger(__name__)


class AuditSettings(ProcessSettings):
    """The cluster, and the Kafka consumer group that its managers use."""

    manager: ManagerSection = ManagerSection()


def audit(
    settings: KafkaSettings,
    trained: Path | None = None,
    *,
    group: str = ManagerSection().group,
    ended: bool = False,
    stopping: Stopping = never,
) -> AuditReport:
    """Audit the log as it is now, with the files in `trained` if it is given.

    `group`: the managers' Kafka consumer group. `ended`: none of the run's processes lives, so in a
    finished run, anything still open is a violation. Raises what `Rounds` raises, and
    `NothingToAudit`.
    """
    skipped = Skipped()
    with _rounds(settings, group, skipped, stopping) as rounds:
        auditor = _auditor(rounds, trained)

        def read_stored() -> None:
            prefixes, names = auditor.stored_wanted()
            auditor.store(stored_sessions(settings, prefixes, names, skipped, stopping))

        _round(rounds, auditor, read_stored)
        # A trajectory may be missing only because its partition had no mark yet: look again.
        time.sleep(_MARKS_S)
        _round(rounds, auditor, read_stored)
        if ended:
            auditor.end()
        return _report(rounds, auditor, skipped)


def follow(
    settings: KafkaSettings,
    trained: Path | None = None,
    *,
    group: str = ManagerSection().group,
    every_s: float = EVERY_S,
    stopping: Stopping = never,
) -> Iterator[AuditReport]:
    """Yield a report after each round, at most one in `every_s`, until `stopping`.

    It waits out Kafka's outages. Raises `RecordsRemoved`, and `KafkaUnavailable` at the start.
    """
    skipped = Skipped()
    with _rounds(settings, group, skipped, stopping) as rounds:
        auditor = _auditor(rounds, trained, _MOST_TOKENS)
        while not stopping():
            began_s = time.monotonic()
            try:
                _round(rounds, auditor)
            except KafkaUnavailable as error:
                _log.warning("round not finished, trying again: %s", error)
            else:
                yield _report(rounds, auditor, skipped)
            while not stopping() and (left_s := began_s + every_s - time.monotonic()) > 0:
                time.sleep(min(left_s, _MARKS_S))


def _rounds(
    settings: KafkaSettings, group: str, skipped: Skipped, stopping: Stopping
) -> Rounds | RecordingRounds:
    """Return the reader for the prefix: for a run with agents, or for training on a recording."""
    source = recorded_source(settings, stopping)
    if source is None:
        return Rounds(settings, group, skipped, stopping)
    return RecordingRounds(settings, source, skipped, stopping)


def _auditor(
    rounds: Rounds | RecordingRounds, trained: Path | None, most_tokens: int | None = None
) -> Auditor:
    recorded = isinstance(rounds, RecordingRounds)
    return Auditor(rounds.partitions, trained, most_tokens, recorded)


def _round(
    rounds: Rounds | RecordingRounds,
    auditor: Auditor,
    read_stored: Callable[[], None] | None = None,
) -> None:
    """Read all topics once. `read_stored` reads whole pools, so an audit that follows omits it."""
    progress = rounds.progress()
    for partition in rounds.measure():
        auditor.cut(partition)
    for received in rounds.read():
        auditor.apply(received)
    if read_stored is not None:
        read_stored()
    auditor.settle(progress)


def _report(rounds: Rounds | RecordingRounds, auditor: Auditor, skipped: Skipped) -> AuditReport:
    return auditor.report([*rounds.notices, *skipped.notices], complete=not skipped.missed)
