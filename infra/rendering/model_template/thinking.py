"""Thinking in completions of models whose tokenizer has a token for each of its two marks. Pure."""

from dataclasses import dataclass

from seamlessflow.infra.rendering.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Split:
    """Completion without its stop token; `thinking` is None if there is none."""

    thinking: list[int] | None
    rest: list[int]
    closed: bool = True


class Thinking:
    """Marks of thinking; without them no completion has any."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._begin = tokenizer.token_id("<think>")
        self._end = tokenizer.token_id("</think>")
        self._blank = frozenset(tokenizer.encode("\n") + tokenizer.encode("\n\n"))

    @property
    def known(self) -> bool:
        """True if the tokenizer has both marks."""
        return None not in (self._begin, self._end)

    def split(self, completion: list[int], generation_prompt: list[int]) -> Split:
        """Return thinking and the rest of a completion.

        The generation prompt may have opened the thinking.
        """
        marks = [token for token in generation_prompt if token in (self._begin, self._end)]
        opened = bool(marks) and marks[-1] == self._begin
        begin = 0
        if self.known and not opened:
            while begin < len(completion) and completion[begin] in self._blank:
                begin += 1
            opened = begin < len(completion) and completion[begin] == self._begin
            begin += opened
        if not self.known or not opened:
            return Split(None, completion)
        if self._end not in completion:
            return Split(completion[begin:], [], closed=False)
        end = completion.index(self._end)
        return Split(completion[begin:end], completion[end + 1 :])
