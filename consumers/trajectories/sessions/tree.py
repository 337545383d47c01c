"""A session's token tree. Each node is a run of tokens behind a prefix of its parent.

Only the fold changes it. Token ids are little-endian int32 bytes all the way to the trainer. A
Python int for each token would cost more than everything else together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from seamlessflow.schemas.records import TokenTensor, VersionSpan
from seamlessflow.schemas.tokens import FORKED, POLICY, TOKEN_BYTES

ROOT = -1


@dataclass(slots=True)
class Node:
    """A run of tokens behind the parent's first `parent_end` tokens."""

    node_id: int
    parent: int
    parent_end: int
    origin: str
    turn_id: str
    log_offset: int
    ids: bytearray
    logprobs: bytearray = field(default_factory=bytearray)
    spans: list[VersionSpan] = field(default_factory=list)
    children: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.ids) // TOKEN_BYTES

    @property
    def sampled(self) -> bool:
        """True for an answer, False for a part of a prompt."""
        return self.origin in (POLICY, FORKED)


@dataclass(slots=True)
class Tree:
    """A session's nodes in log order."""

    nodes: list[Node] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def grow(self, parent: int, parent_end: int, origin: str, turn_id: str, offset: int) -> Node:
        """Add an empty node behind the first `parent_end` tokens of `parent` and return it."""
        node = Node(len(self.nodes), parent, parent_end, origin, turn_id, offset, bytearray())
        self.nodes.append(node)
        (self.nodes[parent].children if parent != ROOT else self.roots).append(node.node_id)
        return node

    def holds(self, node_id: int, end: int) -> bool:
        """Return True if the node has `end` tokens, so that a child can follow them."""
        if node_id == ROOT:
            return end == 0
        return 0 <= node_id < len(self.nodes) and 0 <= end <= self.nodes[node_id].length

    def prompt_behind(self, node: Node, end: int, ids: bytes) -> Node | None:
        """Return the prompt behind `end` tokens in `node` that has exactly these tokens, or None.

        It may fork inside another prompt: one that was rendered anew begins where tokens differ.
        """
        for child in map(self.nodes.__getitem__, node.children):
            if child.parent_end != end or child.sampled:
                continue
            if child.ids == ids:
                return child
            shared = common_length(
                np.frombuffer(bytes(child.ids), np.int32), np.frombuffer(ids, np.int32)
            )
            rest = ids[shared * TOKEN_BYTES :]
            prompt = self.prompt_behind(child, shared, rest) if rest else None
            if prompt is not None:
                return prompt
        return None

    def path(self, node_id: int, end: int) -> bytes:
        """Return all token ids from the root to the node's first `end` tokens."""
        parts: list[bytearray] = []
        while node_id != ROOT:
            node = self.nodes[node_id]
            size = end * TOKEN_BYTES
            parts.append(node.ids if size == len(node.ids) else node.ids[:size])
            node_id = node.parent
            end = node.parent_end
        parts.reverse()
        return b"".join(parts)

    def longest_common_prefix(self, ids: bytes) -> tuple[int, int, int]:
        """Return where `ids` leave the tree: node, common tokens in it, common tokens in all.

        The deepest place wins; if several are equally deep, the youngest node. `(ROOT, 0, 0)` if
        even the first token is not in the tree.
        """
        wanted = np.frombuffer(ids, np.int32)
        best = (ROOT, 0, 0)
        for node, common, depth in self._walk(wanted):
            # A node without a common token is no deeper place than its parent's end.
            if common > 0 and depth >= best[2]:
                best = (node, common, depth)
        return best

    def _walk(self, wanted: npt.NDArray[np.int32]) -> Iterator[tuple[int, int, int]]:
        # Depth first in the order of ids, without recursion: trees get deeper than Python's stack.
        open_ends = [(root, 0) for root in reversed(self.roots)]
        while open_ends:
            node_id, start = open_ends.pop()
            node = self.nodes[node_id]
            common = common_length(np.frombuffer(bytes(node.ids), np.int32), wanted[start:])
            yield node_id, common, start + common
            open_ends += [
                (child, start + self.nodes[child].parent_end)
                for child in reversed(node.children)
                if self.nodes[child].parent_end <= common
            ]


def common_length(first: npt.NDArray[np.int32], second: npt.NDArray[np.int32]) -> int:
    """Return the longest common prefix's length."""
    shorter = min(len(first), len(second))
    different = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(different[0]) if len(different) else shorter


def appended(before: TokenTensor | None, more: TokenTensor) -> TokenTensor:
    """Return one array over all tokens so far, or only `more` if rows between are missing."""
    if before is None or before.data is None or more.data is None:
        return more
    if before.to_token != more.from_token or before.shape[1:] != more.shape[1:]:
        return more
    shape = (more.to_token - before.from_token, *before.shape[1:])
    return replace(more, from_token=before.from_token, shape=shape, data=before.data + more.data)


def add_spans(spans: list[VersionSpan], more: tuple[VersionSpan, ...]) -> None:
    """Append spans from `more` to `spans`, except where the version stays the same."""
    for span in more:
        if not spans or not _same_version(spans[-1], span):
            spans.append(span)


def _same_version(first: VersionSpan, second: VersionSpan) -> bool:
    return (
        first.version_min == second.version_min
        and first.version_max == second.version_max
        and first.kv == second.kv
    )
