"""A trajectory's chains as JSON: the token sequences that a trainer can learn from. Pure.

A chain goes from a root of the token tree to a branch's last sampled token. A sampled token counts
as sampled in only one chain, even if several branches share it. Members and values are the same as
in the table `chains` that `seamlessflow export` writes, in lists of numbers. A test compares them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seamlessflow.schemas.records import Trajectory, TrajectoryNode
from seamlessflow.schemas.tokens import FOREIGN, POLICY, of_exact_version, unpack

_NONE = -1
"""Turn and version of a token that was not sampled; also a version that is not exactly known."""
TokenRun = tuple[int, int]
"""Start and end within the trajectory's arrays."""


@dataclass(slots=True)
class _TokenColumns:
    """A trajectory's arrays, with an entry for each token."""

    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float]
    temperatures: list[float]
    versions: list[int]
    turn_numbers: list[int]


def trained_chains(made: Trajectory) -> list[Mapping[str, Any]]:
    """Return the chains with a sampled token, policy by policy, in log order."""
    turns: dict[str, int] = {}
    columns = _columns(made, turns)
    branches = [list(_path(made.nodes, node)) for node in _ends(made.nodes)]
    chains: list[Mapping[str, Any]] = []
    for policy in dict.fromkeys(node.policy or made.policy for node in made.nodes):
        left = _sampled_by(made, policy)
        for runs in branches:
            sampled = bytearray(b"".join(left[start:end] for start, end in runs))
            sampled[:1] = bytes(len(sampled[:1]))  # no token predicts the first one
            for start, end in runs:
                left[start:end] = bytes(end - start)
            if (length := sampled.rfind(1) + 1) > 0:
                chains.append(_chain(policy, columns, runs, sampled[:length], list(turns)))
    return chains


def _chain(
    policy: str,
    columns: _TokenColumns,
    runs: Sequence[TokenRun],
    sampled: bytearray,
    turns: Sequence[str],
) -> Mapping[str, Any]:
    def joined(column: Sequence[Any]) -> list[Any]:
        return [value for start, end in runs for value in column[start:end]][: len(sampled)]

    mask = [bool(flag) and kept for flag, kept in zip(sampled, joined(columns.mask), strict=True)]
    turns_T = joined(columns.turn_numbers)
    present = sorted({number for number in turns_T if number != _NONE})
    numbers = {number: place for place, number in enumerate(present)}
    return {
        "policy": policy,
        "prompt_length": mask.index(True) if True in mask else len(mask),
        "token_ids": joined(columns.token_ids),
        "mask": mask,
        "sampled": list(map(bool, sampled)),
        "logprobs": joined(columns.logprobs),
        "temperatures": joined(columns.temperatures),
        "versions": joined(columns.versions),
        "turn_numbers": [numbers.get(number, _NONE) for number in turns_T],
        "turns": [turns[number] for number in present],
    }


def _columns(made: Trajectory, turns: dict[str, int]) -> _TokenColumns:
    """Return all tokens' arrays; fill `turns` with each turn's number."""
    size = len(made.loss_mask)
    columns = _TokenColumns(
        unpack(made.tokens),
        list(map(bool, made.loss_mask)),
        [float(value) for value in memoryview(made.logprobs).cast("f")],
        [1.0] * size,
        [_NONE] * size,
        [_NONE] * size,
    )
    for start, end, version in _version_runs(made):
        columns.versions[start:end] = [version] * (end - start)
    for node in made.nodes:
        end = node.start + node.length
        if node.origin in (POLICY, FOREIGN):
            number = turns.setdefault(node.turn_id, len(turns))
            columns.turn_numbers[node.start : end] = [number] * node.length
            columns.temperatures[node.start : end] = [node.logprob_temperature] * node.length
        else:
            columns.versions[node.start : end] = [_NONE] * node.length
    return columns


def _version_runs(made: Trajectory) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and version for the tokens whose version is known exactly."""
    spans = sorted(made.spans, key=lambda span: span.start)
    ends = [*(span.start for span in spans[1:]), len(made.loss_mask)]
    for span, end in zip(spans, ends, strict=False):
        if of_exact_version(span):
            yield span.start, end, span.version_min


def _sampled_by(made: Trajectory, policy: str) -> bytearray:
    """Return a byte for each token: 1 if this policy sampled it."""
    flags = bytearray(len(made.loss_mask))
    for node in made.nodes:
        if node.origin == POLICY and (node.policy or made.policy) == policy:
            flags[node.start : node.start + node.length] = b"\1" * node.length
    return flags


def _ends(nodes: Sequence[TrajectoryNode]) -> Iterator[TrajectoryNode]:
    """Yield the nodes that no other node continues at their end."""
    continued = {
        node.parent
        for node in nodes
        if node.parent >= 0 and node.parent_end == nodes[node.parent].length
    }
    yield from (node for node in nodes if node.node_id not in continued)


def _path(nodes: Sequence[TrajectoryNode], leaf: TrajectoryNode) -> Sequence[TokenRun]:
    """Return the token runs from the root to a node's end."""
    runs = [(leaf.start, leaf.start + leaf.length)]
    node = leaf
    while node.parent >= 0:
        end = node.parent_end
        node = nodes[node.parent]
        runs.append((node.start, node.start + end))
    return runs[::-1]
