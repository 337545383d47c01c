"""Forms of an export: the tables that each has, and their rows. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from seamlessflow.recorded.export.sampled_chains import SampledChain, sampled_chains
from seamlessflow.recorded.export.session_rows import (
    IDENTITY,
    PROVENANCE,
    SESSIONS_TABLE,
    ExportedSession,
    identity,
    session_row,
)
from seamlessflow.recorded.export.tables import Cell, Kind, Row, Table

IGNORED = -100
"""Label of a token that no loss is taken of, as in PyTorch's cross entropy."""
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

Cells = Callable[[SampledChain, ExportedSession], Mapping[str, Cell]]


@dataclass(frozen=True, slots=True)
class Form:
    """A form: one table of chains, and perhaps that of the sessions."""

    chains: Table
    cells: Cells
    """Return the columns that are special to the form."""
    sessions: bool = False
    """True: all sessions and all that was sampled; False: only chains with a trained token."""

    @property
    def tables(self) -> tuple[Table, ...]:
        """Tables of the form."""
        return (self.chains, SESSIONS_TABLE) if self.sessions else (self.chains,)

    def rows(self, one: ExportedSession) -> Iterator[tuple[str, Row]]:
        """Yield the session's rows, each with the name of its table.

        Raises `TrajectoryMalformed`.
        """
        if self.sessions:
            yield SESSIONS_TABLE.name, session_row(one)
        for number, found in enumerate(sampled_chains(one.made)):
            if self.sessions or found.trained_T.any():
                place = {**identity(one), **_place(found), "chain": number}
                yield self.chains.name, {**place, **self.cells(found, one)}


def _place(found: SampledChain) -> dict[str, Cell]:
    versions = found.versions_T[found.versions_T >= 0]
    return {
        "policy": found.policy,
        "version_min": int(versions.min()) if versions.size else None,
        "version_max": int(versions.max()) if versions.size else None,
    }


def _split(found: SampledChain) -> int:
    """Return the number of tokens before the first trained one: the prompt."""
    return int(found.trained_T.argmax())


def _as_chain(found: SampledChain, _: ExportedSession) -> dict[str, Cell]:
    tokens = found.chain.tokens
    # Turns are numbered in the order of the chain, and only those that it has.
    numbers = np.unique(tokens.turns_T[tokens.turns_T >= 0])
    turns_T = np.where(tokens.turns_T < 0, -1, np.searchsorted(numbers, tokens.turns_T))
    return {
        "token_ids": tokens.ids_T,
        "mask": found.trained_T,
        "sampled": found.sampled_T,
        "logprobs": tokens.logprobs_T,
        "temperatures": tokens.temperatures_T,
        "versions": found.versions_T,
        "turn_numbers": turns_T.astype(np.int32),
        "turns": " ".join(found.chain.turns[number] for number in numbers),
    }


def _as_prime_rl(found: SampledChain, _: ExportedSession) -> dict[str, Cell]:
    at, tokens = _split(found), found.chain.tokens
    return {
        "prompt_ids": tokens.ids_T[:at],
        "prompt_mask": np.zeros(at, np.bool_),
        "completion_ids": tokens.ids_T[at:],
        "completion_mask": found.trained_T[at:],
        "completion_logprobs": tokens.logprobs_T[at:],
        "completion_temperatures": tokens.temperatures_T[at:],
        "versions": found.versions_T,
    }


def _as_verl(found: SampledChain, one: ExportedSession) -> dict[str, Cell]:
    at, tokens = _split(found), found.chain.tokens
    return {
        "prompt_ids": tokens.ids_T[:at],
        "response_ids": tokens.ids_T[at:],
        "response_mask": found.trained_T[at:].astype(np.int32),
        "response_logprobs": tokens.logprobs_T[at:],
        "reward_score": identity(one)["reward"],
        "num_turns": len(np.unique(tokens.turns_T[tokens.turns_T >= 0])),
        "versions": found.versions_T,
    }


def _as_trl(found: SampledChain, _: ExportedSession) -> dict[str, Cell]:
    tokens = found.chain.tokens
    labels = np.where(found.trained_T, tokens.ids_T, np.int32(IGNORED))
    return {
        "input_ids": tokens.ids_T,
        "labels": labels,
        "logprobs": tokens.logprobs_T,
        "versions": found.versions_T,
    }


FORMS: Mapping[str, Form] = {
    "sessions": Form(Table("chains", {**_CHAINS, **_PLACE}), _as_chain, sessions=True),
    "prime-rl": Form(Table("samples", {**_PRIME_RL, **_PLACE}), _as_prime_rl),
    "verl": Form(Table("samples", {**_VERL, **_PLACE}), _as_verl),
    "trl": Form(Table("samples", {**_TRL, **_PLACE}), _as_trl),
}
"""Forms by the name that the option has."""
