"""A shared group's examination: its trajectories, or why it is left out. Pure but for the judge.

A group is only read once its signature is verified, with a key that the configuration names. Even
then its text is a stranger's. It is data for the renderer and the judge, and any error that they
raise is a reason to leave the group out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from seamlessflow.recorded.importing.foreign_row import ForeignRow
from seamlessflow.recorded.importing.foreign_trajectory import (
    ForeignRules,
    RowOrigin,
    foreign_trajectory,
)
from seamlessflow.recorded.share.content import (
    MOST_BYTES,
    ContentMalformed,
    SharedContent,
    SharedSession,
    name_of,
    read_content,
)
from seamlessflow.recorded.share.keys import is_signed
from seamlessflow.schemas.codec import UndecodableRecord, decode
from seamlessflow.schemas.json_text import read_json
from seamlessflow.schemas.records import Reward, SharedGroup, Trajectory
from seamlessflow.schemas.tokens import FOREIGN
from seamlessflow.trainer.data.chains import Chain

PLACE = f"{FOREIGN}_place"
"""Metadata of a taken session: its group's topic, partition and offset."""
_PROVENANCE = ("cluster", "run", "policy", "model", "release", "group")
_ENVELOPE_BYTES = 1_024
_MOST_TOKENS = 1_000_000
"""Most tokens in a session over all its branches, since a record holds them."""
_SHOWN = 200

Judge = Callable[[Any, str], Any]
"""The user's own function: a session's reward from the task, as the run's file has it, and from the
text of its answers."""
ReadRow = Callable[[str, Mapping[str, Any]], tuple[Chain, ...]]
"""Function that returns the chains for messages and tools, each with its answers sampled. The first
argument is a name for the session. It may raise anything."""


class Reason(StrEnum):
    """Kinds of reasons why a group is left out."""

    TOO_LARGE = "too large"
    MALFORMED = "malformed"
    UNSIGNED = "unsigned"
    UNKNOWN_SIGNER = "unknown signer"
    WRONG_SIGNATURE = "wrong signature"
    REPEATED = "repeated"
    UNKNOWN_TASK = "unknown task"
    JUDGE_FAILED = "judge failed"


class LeftOut(Exception):
    """A group that is not taken, and goes to the dead letters."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        text = f"{reason}: {detail}" if detail else str(reason)
        # A judge's error may quote half of a character, which no header has.
        super().__init__(text.encode(errors="backslashreplace").decode()[:_SHOWN])


@dataclass(frozen=True, slots=True)
class TakingRules:
    """All that decides which groups are taken, and as what."""

    signers: Mapping[str, str]
    """Signers' names by their public keys."""
    public: str
    """The run's own public key, whose groups are passed over; empty if it has none."""
    payload: Callable[[str], bytes | None]
    """Returns the run's task with an id, as JSON, or None."""
    read: ReadRow
    judge: Judge
    policy: str
    tokenizer_hash: str


@dataclass(frozen=True, slots=True)
class SignedContent:
    """A content with a right signature. It is not read yet."""

    content: bytes
    signer: str
    """The signer's name; empty: the run itself."""

    @property
    def name(self) -> str:
        """Return the content's name."""
        return name_of(self.content)


def signed_content(value: bytes, rules: TakingRules) -> SignedContent:
    """Return a record's content if its signature is right. Raises `LeftOut`."""
    if len(value) > MOST_BYTES + _ENVELOPE_BYTES:
        raise LeftOut(Reason.TOO_LARGE, f"{len(value):,} bytes, above {MOST_BYTES:,}")
    try:
        record = decode(value)
    except UndecodableRecord as error:
        raise LeftOut(Reason.MALFORMED, str(error)) from None
    if not isinstance(record, SharedGroup):
        raise LeftOut(Reason.MALFORMED, f"{type(record).__name__} is no shared group")
    if len(record.content) > MOST_BYTES:
        raise LeftOut(Reason.TOO_LARGE, f"{len(record.content):,} bytes, above {MOST_BYTES:,}")
    if not record.signature or not record.signer:
        raise LeftOut(Reason.UNSIGNED)
    if record.signer != rules.public and record.signer not in rules.signers:
        raise LeftOut(Reason.UNKNOWN_SIGNER, f"{record.signer!r:.70} is not in share.signers")
    if not is_signed(record.content, record.signature, record.signer):
        raise LeftOut(Reason.WRONG_SIGNATURE, f"it is not that of {record.signer}")
    name = "" if record.signer == rules.public else rules.signers[record.signer]
    return SignedContent(record.content, name)


def trajectories_of(signed: SignedContent, place: str, rules: TakingRules) -> list[Trajectory]:
    """Return a trajectory for each session in a content. Raises `LeftOut`."""
    try:
        content = read_content(signed.content)
    except ContentMalformed as error:
        raise LeftOut(Reason.MALFORMED, str(error)) from None
    payload = rules.payload(content.task_id)
    if payload is None:
        raise LeftOut(Reason.UNKNOWN_TASK, f"{content.task_id!r:.100}")
    if differing := _differing(content.task, read_json(payload)):
        text = f"{content.task_id!r:.100} is another task here: {', '.join(differing)!r:.60}"
        raise LeftOut(Reason.UNKNOWN_TASK, text)
    metadata = {
        "signer": signed.signer,
        PLACE: place,
        **{
            f"{FOREIGN}_{name}": content.provenance[name]
            for name in _PROVENANCE
            if name in content.provenance
        },
    }
    made = _read(content, signed.name, metadata, rules)
    return [
        replace(_judged(trajectory, session, payload, rules), sample=sample, group_size=len(made))
        for sample, (trajectory, session) in enumerate(made)
    ]


def _differing(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """Return the members that both objects have with different values; an id may be a number."""
    return sorted(
        name
        for name in theirs.keys() & ours.keys()
        if theirs[name] != ours[name]
        and not (name == "id" and str(theirs[name]) == str(ours[name]))
    )


def _read(
    content: SharedContent, name: str, metadata: Mapping[str, str], rules: TakingRules
) -> list[tuple[Trajectory, SharedSession]]:
    made = []
    for number, session in enumerate(content.sessions, 1):
        origin = RowOrigin(name, name, name, number)
        try:
            chains = rules.read(origin.session_id, session.row())
            row = _row(chains, content.task_id, name, rules)
        except Exception as error:  # the libraries of templates raise anything for a strange text
            reason = f"session {number}: {error or type(error).__name__}"
            raise LeftOut(Reason.MALFORMED, reason) from None
        trajectory = foreign_trajectory(origin, row, ForeignRules(train=True, unscored=True))
        whole = {**trajectory.metadata, **metadata}
        made.append((replace(trajectory, metadata=whole, reason="shared"), session))
    return made


def _row(chains: tuple[Chain, ...], task_id: str, name: str, rules: TakingRules) -> ForeignRow:
    """Return a session's branches one behind the other. Raises `ValueError`."""
    ids_T = np.concatenate([chain.tokens.ids_T for chain in chains])
    if (size := len(ids_T)) > _MOST_TOKENS:
        raise ValueError(f"{size:,} tokens over all branches, above {_MOST_TOKENS:,}")
    named = {
        "task_id": task_id,
        "group_id": f"{FOREIGN}-{name}",
        "policy": rules.policy,
        "tokenizer_hash": rules.tokenizer_hash,
        "status": "complete",
    }
    return ForeignRow(
        ids_T=ids_T,
        sampled_T=np.concatenate([chain.tokens.turns_T >= 0 for chain in chains]),
        logprobs_T=None,
        temperatures_T=np.ones(size, np.float32),
        versions_T=np.full(size, -1, np.int32),
        reward=None,
        several_versions=None,
        named=named,
        begins=tuple(_begins(chains)),
    )


def _begins(chains: tuple[Chain, ...]) -> Iterator[int]:
    start = 0
    for chain in chains:
        yield start
        start += len(chain)


def _judged(
    trajectory: Trajectory, session: SharedSession, payload: bytes, rules: TakingRules
) -> Trajectory:
    """Return the trajectory with the judge's reward. Raises `LeftOut`."""
    try:
        value = rules.judge(read_json(payload), session.text)
        if not isinstance(value, Real):  # a number of numpy is one, and so is True
            raise TypeError(f"it returned {type(value).__name__}, no number")
        reward = float(value)
        if not isfinite(reward):
            raise ValueError(f"it returned {reward}")
    except (Exception, SystemExit) as error:  # a user's function may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise LeftOut(Reason.JUDGE_FAILED, reason) from None
    return replace(trajectory, rewards=(Reward(value=reward, source="share.judge"),))
