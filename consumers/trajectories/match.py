"""Where a request goes on in its session's tree: what matching finds."""

from dataclasses import dataclass, replace

from consumers.trajectories.tree import TOKEN_BYTES


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
    prefill: int = 0
    """How many of the last tokens begin the answer."""

    def with_answer_begun(self, ids: bytes) -> "Match":
        """The same place, with the first tokens of the answer behind the prompt."""
        return replace(
            self,
            suffix_ids=self.suffix_ids + ids,
            prompt_ids=self.prompt_ids + ids,
            prefill=len(ids) // TOKEN_BYTES,
        )
