"""Where a request goes on in its session's tree: what matching finds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """Where a prompt goes on and what it adds."""

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
