"""Experiment trackers: their libraries, the run that they show, and texts from its sessions.

A library is imported only if a setting asks for it. A run has a name, settings, and a file that
keeps its id.
"""

import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seamlessflow.infra.errors import SeamlessFlowError
from seamlessflow.schemas.arrays import Int32s
from seamlessflow.trainer.data.batch import Batch
from seamlessflow.trainer.data.sessions import ValidSession

DecodeText = Callable[[Sequence[int]], str]

_PROMPT_TOKENS, _ANSWER_TOKENS = 500, 1_500
"""Most tokens that are shown: a prompt's last ones, an answer's first ones."""


class SampleText(NamedTuple):
    """A row in a table of sample texts."""

    group: str
    session: str
    reward: float
    prompt: str
    """Text before the first trained token; if it is long, only its end."""
    answer: str
    """Text from that token on, with tools' results; if it is long, only its beginning."""


def sample_texts(batch: Batch, count: int, decode: DecodeText) -> list[SampleText]:
    """Return up to `count` rows: the sessions with each group's best and worst return."""
    return [_row(session, decode) for session in islice(_extremes(batch), count)]


def _extremes(batch: Batch) -> Iterator[ValidSession]:
    for prepared in batch.groups:
        sessions = [session for session in prepared.group.sessions if session.chains]
        ordered = sorted(sessions, key=lambda session: session.reward)
        yield from ordered[:1]
        yield from ordered[1:][-1:]


def _row(session: ValidSession, decode: DecodeText) -> SampleText:
    tokens = max(session.chains, key=len).tokens
    first = int(np.argmax(tokens.trained_T))
    prompt_P = tokens.ids_T[:first]
    answer_A = tokens.ids_T[first:]
    return SampleText(
        session.source.group_id,
        session.source.session_id,
        session.reward,
        _text(prompt_P[-_PROMPT_TOKENS:], decode),
        _text(answer_A[:_ANSWER_TOKENS], decode),
    )


def _text(ids: Int32s, decode: DecodeText) -> str:
    return decode(ids.tolist())


class SinkUnavailable(SeamlessFlowError):
    """A sink that is set, but whose library is not installed."""

    lasting = True

    def __init__(self, setting: str, package: str) -> None:
        self.setting = setting
        self.package = package
        super().__init__(f"{setting} is set, but {package} is not installed: pip install {package}")


def imported(module: str, setting: str, package: str) -> Any:
    """Return a module. Raise `SinkUnavailable`."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkUnavailable(setting, package) from error


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run in a tracker; a restarted trainer goes on with it."""

    name: str
    parameters: Mapping[str, str]
    """Settings by their place in the configuration, such as `trainer.loss.kl`."""
    id_file: Path
    """File with the run's id at the tracker, once there is one."""

    def known_id(self) -> str:
        """Return the id that an earlier start kept; empty without one."""
        return self.id_file.read_text("utf-8").strip() if self.id_file.is_file() else ""

    def keep_id(self, run_id: str) -> None:
        """Keep the id for the next start."""
        self.id_file.write_text(run_id, encoding="utf-8")


def flattened(sections: Mapping[str, Any]) -> Mapping[str, str]:
    """Return settings by their dotted names; lists, and empty sections, as JSON."""
    return dict(_leaves("", sections))


def _leaves(place: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{place}.{name}" if place else name, inner)
    else:
        yield place, value if isinstance(value, str) else json.dumps(value)
