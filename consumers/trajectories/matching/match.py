"""The terms of matching: the renderer that it asks, and the match, a place in the tree.

The protocols here are the part of `seamlessflow.infra.rendering.renderer.Renderer` that matching
uses.

A match may bring interventions: assistant answers that no policy sampled in the session. A person,
an expert or another program spoke for the policy. An answer that an earlier request already had no
longer counts, however often later requests repeat it. `TurnStarted` records the decision made when
the turn started. Plain prompts have no messages, and so no interventions. Pure.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from seamlessflow.consumers.trajectories.sessions.message_keys import Strictness, message_key
from seamlessflow.consumers.trajectories.sessions.session import Session, Turn, TurnState
from seamlessflow.consumers.trajectories.sessions.tree import ROOT, Node, Tree
from seamlessflow.schemas.tokens import TOKEN_BYTES

SAME_PROMPT = "same_prompt"
"""Detail for a match that adds no tokens: another sample of a known prompt."""
RequestMessages = Sequence[Mapping[str, Any]]


class TextEncoder(Protocol):
    """A tokenizer and its stop tokens: enough to match plain text."""

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a message or a completion; no plain text contains them."""
        ...

    def encode(self, text: str) -> bytes:
        """Return a plain text's ids."""
        ...

    def decode(self, ids: bytes) -> str:
        """Return the text of `ids`."""
        ...


class PromptRenderer(TextEncoder, Protocol):
    """A chat template with its tokenizer: enough to match messages."""

    def render(self, messages: RequestMessages, tools: RequestMessages | None = None) -> bytes:
        """Return the whole prompt's ids."""
        ...

    def forced_call(
        self,
        prompt: bytes,
        messages: RequestMessages,
        tools: RequestMessages | None,
        name: str | None,
    ) -> bytes:
        """Return the ids that open a call to function `name`, or to any, behind the prompt."""
        ...

    def tail(self, prompt: bytes) -> bytes:
        """Return a prompt's end, as much as `bridge` needs."""
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
    """Strictnesses by which the repeated answer differs from the extended turn's answer."""
    prefill: int = 0
    """Number of tokens at the prompt's end with which the answer begins."""

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
    """Return the place behind a copied prompt with this history; nothing is rendered anew.

    None if the session has no such prompt.
    """
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


SINCE_RULES = 2
"""First version of the fold's rules that knows interventions."""
_OF_THE_ASSISTANT = b'"role":"assistant"'


def intervenes(session: Session, hit: Match, strictness: Strictness) -> bool:
    """Return whether an answer among a match's new messages is an intervention.

    The turns that the request continues stand in the history before these messages. Any other turn
    may have sampled such an answer, or had it in its request: an agent that changes its history
    repeats them. Answers are compared by `strictness`.
    """
    answers = _answers(hit.new_messages, strictness)
    if not answers or session.opened.fold_version < SINCE_RULES:
        return False
    before = {turn.started.turn_id for turn in _history(session, hit.parent_turn)}
    others = [turn for name, turn in session.turns.items() if name not in before]
    completed = (turn.message for turn in others if turn.state is TurnState.COMPLETED)
    sampled = Counter(message_key(message, strictness) for message in completed)
    repeated = Counter[bytes]()
    for turn in others:
        repeated |= _answers(turn.started.new_messages, strictness)
    return bool(answers - (sampled + repeated))


def _answers(messages: Sequence[bytes], strictness: Strictness) -> Counter[bytes]:
    """Return how often each answer occurs among messages, by the answer's key."""
    answers = (message for message in messages if _OF_THE_ASSISTANT in message)
    return Counter(message_key(answer, strictness) for answer in answers)


def _history(session: Session, turn_id: str | None) -> Iterator[Turn]:
    """Yield a turn and its chain of parents, back to the first that was rendered anew."""
    while turn_id is not None and (turn := session.turns.get(turn_id)) is not None:
        yield turn
        turn_id = turn.started.parent_turn
