"""The engine's own record: what it was given and what it sampled, a JSON line for each turn.

Written by the engine's process as a turn ends, read by the tests. It knows neither the log nor the
manager, so a trajectory that agrees with it is what was sampled.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import orjson


@dataclass(frozen=True, slots=True)
class SampledTurn:
    """One request to the engine: ids int32, log-probs float32, as hex."""

    request_id: str
    prompt: str
    tokens: str
    logprobs: str
    finish_reason: str

    @property
    def turn_id(self) -> str:
        """Return the turn of a request, whose id is `turn/dispatch`."""
        return self.request_id.rpartition("/")[0]


def append(record: Path, turn: SampledTurn) -> None:
    """Add a line."""
    with record.open("ab") as file:
        file.write(orjson.dumps(asdict(turn), option=orjson.OPT_APPEND_NEWLINE))


def read(record: Path) -> list[SampledTurn]:
    """Return all turns so far, in the order in which they ended."""
    if not record.exists():
        return []
    return [SampledTurn(**orjson.loads(line)) for line in record.read_bytes().splitlines()]
