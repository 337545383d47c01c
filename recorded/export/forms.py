"""An export's forms: each form's tables, and their rows. Pure.

A row is a chain: each sampled token stands in one, and some of its tokens are trained.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from seamlessflow.recorded.export.atif import AtifForm
from seamlessflow.recorded.export.session_rows import (
    IDENTITY,
    PROVENANCE,
    SESSIONS_TABLE,
    ExportedSession,
    identity,
    session_row,
)
from seamlessflow.recorded.export.tables import Cell, Kind, Table, TableRow
from seamlessflow.schemas.arrays import Bools
from seamlessflow.schemas.records import Trajectory
from seamlessflow.schemas.tokens import POLICY, of_exact_version
from seamlessflow.trainer.data.chains import NOWHERE, Chain, chains

_INEXACT = -2
"""Version that replaces one not known exactly, so that its tokens are also in chains."""
IGNORED = -100
"""Label for a token without a loss, as in PyTorch's cross entropy."""
_PLACE = {
    **IDENTITY,
    "chain": Kind.INTEGER,
    "policy": Kind.TEXT,
    "version_min": Kind.INTEGER,
    "version_max": Kind.INTEGER,
    **PROVENANCE,
}
_CHAINS = {
    "token_ids": Kind.IDS,
    "mask": Kind.FLAGS,
    "sampled": Kind.FLAGS,
    "logprobs": Kind.FLOATS,
    "temperatures": Kind.FLOATS,
    "versions": Kind.IDS,
    "turn_numbers": Kind.IDS,
    "turns": Kind.TEXT,
}
_PRIME_RL = {
    "prompt_ids": Kind.IDS,
    "prompt_mask": Kind.FLAGS,
    "completion_ids": Kind.IDS,
    "completion_mask": Kind.FLAGS,
    "completion_logprobs": Kind.FLOATS,
    "completion_temperatures": Kind.FLOATS,
    "versions": Kind.IDS,
}
_VERL = {
    "prompt_ids": Kind.IDS,
    "response_ids": Kind.IDS,
    "response_mask": Kind.IDS,
    "response_logprobs": Kind.FLOATS,
    "reward_score": Kind.NUMBER,
    "num_turns": Kind.INTEGER,
    "versions": Kind.IDS,
}
_TRL = {
    "input_ids": Kind.IDS,
    "labels": Kind.IDS,
    "logprobs": Kind.FLOATS,
    "versions": Kind.IDS,
}


@dataclass(frozen=True, slots=True)
class SampledChain:
    """A chain whose `sampled_T` stand in no other chain of the session."""

    policy: str
    chain: Chain
    sampled_T: Bools
    trained_T: Bools
    """True for those that the trajectory's loss mask has."""
    versions_T: NDArray[np.int32]
    """Each token's policy version, -1 if no policy sampled it or it is not known exactly."""


def sampled_chains(made: Trajectory) -> Iterator[SampledChain]:
    """Yield the chains that together have each sampled token once, by policy.

    Only a sampled token that begins a sequence is in no chain, since no token predicts it. Raises
    `TrajectoryMalformed`.
    """
    whole = _all_sampled(made)
    trained = _trained_by_turn(made)
    for policy in dict.fromkeys(node.policy or made.policy for node in made.nodes):
        for chain in chains(whole, policy).chains:
            sampled_T = chain.tokens.trained_T
            versions_T = chain.tokens.versions_T.copy()
            versions_T[versions_T == _INEXACT] = NOWHERE
            yield SampledChain(policy, chain, sampled_T, _trained(chain, trained), versions_T)


Cells = Callable[[SampledChain, ExportedSession], Mapping[str, Cell]]


@dataclass(frozen=True, slots=True)
class Form:
    """A form: a table for chains, and perhaps one for sessions."""

    chains: Table
    cells: Cells
    """Returns the columns that only this form has."""
    sessions: bool = False
    """True: all sessions and all that was sampled; False: only chains with a trained token."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """The form's tables."""
        return (self.chains, SESSIONS_TABLE) if self.sessions else (self.chains,)

    def rows(self, exported: ExportedSession) -> Iterator[tuple[str, TableRow]]:
        """Yield the session's rows, each with its table's name.

        Raises `TrajectoryMalformed`.
        """
        if self.sessions:
            yield SESSIONS_TABLE.name, session_row(exported)
        for number, sampled in enumerate(sampled_chains(exported.made)):
            if self.sessions or sampled.trained_T.any():
                place = {**identity(exported), **_place(sampled), "chain": number}
                yield self.chains.name, {**place, **self.cells(sampled, exported)}


"""`FORMS`, at the end, has the forms by the name that the option has."""


def _all_sampled(made: Trajectory) -> Trajectory:
    """Return the trajectory as if rules masked nothing."""
    mask = b"".join(bytes([node.origin == POLICY]) * node.length for node in made.nodes)
    spans = tuple(
        span
        if of_exact_version(span)
        else replace(span, version_min=_INEXACT, version_max=_INEXACT)
        for span in made.spans
    )
    return replace(made, loss_mask=mask, spans=spans)


def _trained_by_turn(made: Trajectory) -> dict[str, Bools]:
    """Return for each turn which tokens of its completion are trained."""
    mask = np.frombuffer(made.loss_mask, np.bool_)
    parts: defaultdict[str, list[Bools]] = defaultdict(list)
    for node in made.nodes:
        if node.origin == POLICY:
            parts[node.turn_id].append(mask[node.start : node.start + node.length])
    return {turn: np.concatenate(masks) for turn, masks in parts.items()}


def _trained(chain: Chain, trained: dict[str, Bools]) -> Bools:
    flags = [trained[turn] for turn in chain.turns]
    starts = np.cumsum([0, *map(len, flags)])
    found_T = chain.tokens.trained_T.copy()
    turns_T = chain.tokens.turns_T[found_T]
    found_T[found_T] = np.concatenate(flags)[starts[turns_T] + chain.tokens.offsets_T[found_T]]
    return found_T


def _place(sampled: SampledChain) -> dict[str, Cell]:
    versions = sampled.versions_T[sampled.versions_T >= 0]
    return {
        "policy": sampled.policy,
        "version_min": int(versions.min()) if versions.size else None,
        "version_max": int(versions.max()) if versions.size else None,
    }


def _split(sampled: SampledChain) -> int:
    """Return how many tokens come before the first trained one: the prompt."""
    return int(sampled.trained_T.argmax())


def _as_chain(sampled: SampledChain, _: ExportedSession) -> dict[str, Cell]:
    tokens = sampled.chain.tokens
    # Only the chain's turns are numbered, in its order.
    numbers = np.unique(tokens.turns_T[tokens.turns_T >= 0])
    turns_T = np.where(tokens.turns_T < 0, -1, np.searchsorted(numbers, tokens.turns_T))
    return {
        "token_ids": tokens.ids_T,
        "mask": sampled.trained_T,
        "sampled": sampled.sampled_T,
        "logprobs": tokens.logprobs_T,
        "temperatures": tokens.temperatures_T,
        "versions": sampled.versions_T,
        "turn_numbers": turns_T.astype(np.int32),
        "turns": " ".join(sampled.chain.turns[number] for number in numbers),
    }


def _as_prime_rl(sampled: SampledChain, _: ExportedSession) -> dict[str, Cell]:
    at = _split(sampled)
    tokens = sampled.chain.tokens
    return {
        "prompt_ids": tokens.ids_T[:at],
        "prompt_mask": np.zeros(at, np.bool_),
        "completion_ids": tokens.ids_T[at:],
        "completion_mask": sampled.trained_T[at:],
        "completion_logprobs": tokens.logprobs_T[at:],
        "completion_temperatures": tokens.temperatures_T[at:],
        "versions": sampled.versions_T,
    }


def _as_verl(sampled: SampledChain, exported: ExportedSession) -> dict[str, Cell]:
    at = _split(sampled)
    tokens = sampled.chain.tokens
    return {
        "prompt_ids": tokens.ids_T[:at],
        "response_ids": tokens.ids_T[at:],
        "response_mask": sampled.trained_T[at:].astype(np.int32),
        "response_logprobs": tokens.logprobs_T[at:],
        "reward_score": identity(exported)["reward"],
        "num_turns": len(np.unique(tokens.turns_T[tokens.turns_T >= 0])),
        "versions": sampled.versions_T,
    }


def _as_trl(sampled: SampledChain, _: ExportedSession) -> dict[str, Cell]:
    tokens = sampled.chain.tokens
    labels = np.where(sampled.trained_T, tokens.ids_T, np.int32(IGNORED))
    return {
        "input_ids": tokens.ids_T,
        "labels": labels,
        "logprobs": tokens.logprobs_T,
        "versions": sampled.versions_T,
    }


FORMS: Mapping[str, Form | AtifForm] = {
    "sessions": Form(Table("chains", {**_CHAINS, **_PLACE}), _as_chain, sessions=True),
    "prime-rl": Form(Table("samples", {**_PRIME_RL, **_PLACE}), _as_prime_rl),
    "verl": Form(Table("samples", {**_VERL, **_PLACE}), _as_verl),
    "trl": Form(Table("samples", {**_TRL, **_PLACE}), _as_trl),
    "atif": AtifForm(),
}
