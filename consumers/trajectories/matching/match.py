"""The terms of matching: the renderer that it asks, and its outcome, a place in the session's tree.

The renderer is the part of `seamlessflow.infra.rendering.renderer.Renderer` that matching uses, as
protocols.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from seamlessflow.consumers.trajectories.sessions.session import Session
from seamlessflow.consumers.trajectories.sessions.tree import ROOT, Node, Tree
from seamlessflow.schemas.tokens import TOKEN_BYTES

SAME_PROMPT = "same_prompt"
"""Detail of a match that adds no tokens: another sample of a known prompt."""
RequestMessages = Sequence[Mapping[str, Any]]


class TextEncoder(Protocol):
    """A tokenizer and its stop tokens: enough to match plain text."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a message or a completion; no plain text contains them."""
        ...

    def encode(self, text: str) -> bytes:
        """Return the ids of a plain text."""
        ...

    def decode(self, ids: bytes) -> str:
        """Return the text of `ids`."""
        ...


class PromptRenderer(TextEncoder, Protocol):
    """A chat template with its tokenizer: enough to match messages."""

    def render(self, messages: RequestMessages, tools: RequestMessages | None = None) -> bytes:
        """Return the ids of the whole prompt."""
        ...

    def forced_call(
        self,
        prompt: bytes,
        messages: RequestMessages,
        tools: RequestMessages | None,
        name: str | None,
    ) -> bytes:
        """Return the ids that open a call of function `name`, or of any, behind the prompt."""
        ...

    def tail(self, prompt: bytes) -> bytes:
        """Return the end of a prompt, as much as `bridge` needs."""
        ...

    def bridge(
        self,
        prompt: bytes,
        completion: bytes,
        new_messages: RequestMessages,
        tools: RequestMessages | None = None,
    ) -> bytes | None:
        """Return the ids to append, or None if the template would change earlier tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """A place in the tree, and the tokens and messages that the prompt adds there."""

    rule: str
    parent_node: int
    parent_end: int
    suffix_ids: bytes
    suffix_origin: str
    prompt_ids: bytes
    history_key: bytes
    new_messages: tuple[bytes, ...]
    detail: str = ""
    ambiguous: bool = False
    parent_turn: str | None = None
    answer_differs: tuple[str, ...] = ()
    """Strictnesses by which the answer that the messages repeat is not the extended turn's."""
    prefill: int = 0
    """Number of tokens at the end of the prompt that the answer begins with."""

    def with_answer_begun(self, ids: bytes, tree: Tree) -> "Match":
        """Append the answer's first tokens to the prompt. Equal prompts share one place."""
        suffix = self.suffix_ids + ids
        opened = replace(
            self,
            suffix_ids=suffix,
            prompt_ids=self.prompt_ids + ids,
            prefill=len(ids) // TOKEN_BYTES,
        )
        shared = _shared(tree, self.parent_node, self.parent_end, suffix)
        if shared is None:
            return opened
        return replace(opened, parent_node=shared.node_id, parent_end=shared.length, suffix_ids=b"")


def fork_point(session: Session, history_key: bytes) -> Match | None:
    """Return the place behind a copied prompt if this is its history: nothing is rendered anew."""
    fork = session.fork
    if fork is None or fork.prompt_node == ROOT or fork.history_key != history_key:
        return None
    node = session.tree.nodes[fork.prompt_node]
    return Match(
        "same" if fork.parent_turn is None else "extend",
        node.node_id,
        node.length,
        b"",
        node.origin,
        session.tree.path(node.node_id, node.length),
        history_key,
        fork.messages,
        SAME_PROMPT,
        parent_turn=fork.parent_turn,
    )


def asked_before(session: Session, history_key: bytes) -> bool:
    """Return True if an earlier turn had exactly this history."""
    return any(turn.started.history_key == history_key for turn in session.turns.values())


def _shared(tree: Tree, parent: int, end: int, ids: bytes) -> Node | None:
    """Return the prompt node that ends with exactly these tokens behind the place, or None."""
    if parent == ROOT:
        return None
    node = tree.nodes[parent]
    if not node.sampled and ids and node.ids[end * TOKEN_BYTES :] == ids:
        return node
    return tree.prompt_behind(node, end, ids)
