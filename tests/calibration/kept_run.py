"""A recorded run as a small file: gzipped JSON of what calibration and accounts read."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import astuple, replace
from pathlib import Path

from seamlessflow.lab.calibration.recorded_run import Recorded, RecordedSession, RecordedTurn
from seamlessflow.schemas import records as r
from seamlessflow.schemas.json_form import from_json, to_json
from seamlessflow.schemas.records import Record

FILE = Path(__file__).with_name("runs.json.gz")
KINDS: Mapping[str, type[Record]] = {
    kind.__name__: kind
    for kind in (
        *(r.SchedulerClaimed, r.WorkerJoined, r.WorkerLost, r.WorkerUsage),
        *(r.RoleAssigned, r.RoleReleased, r.RoleAcquired, r.GroupAdmitted, r.GroupReady),
        *(r.BatchReady, r.StepStarted, r.StepCompleted, r.GenerationPaused, r.GenerationResumed),
    )
}
_TURN = tuple(RecordedTurn.__dataclass_fields__)
_SESSION = tuple(RecordedSession.__dataclass_fields__)


def keep(runs: Mapping[str, Recorded], file: Path = FILE) -> None:
    """Write runs by name."""
    plain_runs = {name: _plain(run) for name, run in runs.items()}
    text = json.dumps(plain_runs, separators=(",", ":")).encode()
    file.write_bytes(gzip.compress(text, mtime=0))


def kept(file: Path = FILE) -> dict[str, Recorded]:
    """Return the runs by name."""
    plain_runs = json.loads(gzip.decompress(file.read_bytes()))
    return {
        name: Recorded(
            control=[
                from_json(KINDS[kind], json.dumps(fields).encode())
                for kind, fields in run["control"]
            ],
            turns=[RecordedTurn(**dict(zip(_TURN, turn, strict=True))) for turn in run["turns"]],
            sessions=[
                _session(dict(zip(_SESSION, session, strict=True))) for session in run["sessions"]
            ],
            rows=run["rows"],
        )
        for name, run in plain_runs.items()
    }


def _plain(run: Recorded) -> dict[str, object]:
    control = [_slim(record) for record in run.control if type(record).__name__ in KINDS]
    return {
        "control": [[type(record).__name__, json.loads(to_json(record))] for record in control],
        "turns": [astuple(turn) for turn in run.turns],
        "sessions": [astuple(session) for session in run.sessions],
        "rows": run.rows,
    }


def _slim(record: Record) -> Record:
    """Return a record without what is only for readers of the log."""
    match record:
        case r.StepCompleted():
            return replace(record, metrics={"publish_s": record.metrics.get("publish_s", 0.0)})
        case r.RoleAssigned():
            return replace(record, reason="", figures={})
        case r.GroupReady():
            return replace(record, sessions=())
    return record


def _session(fields: dict[str, object]) -> RecordedSession:
    sampled = fields.pop("sampled")
    return RecordedSession(sampled=tuple(sampled), **fields)  # type: ignore[arg-type]
