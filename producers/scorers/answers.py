"""Answer in a text: after the reasoning, in a box, after a mark, or the text itself. Pure.

A text may have several marks. The last mark of each kind counts, and kinds count in this order:
`\\boxed{}`, `<answer>`, `####`, "the answer is" or "Answer:". Reasoning is all text before the last
`</think>`. A text whose reasoning has not ended has no answer.
"""

import re
import unicodedata

_THINK = "<think>"
_THOUGHT = "</think>"
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"^\s*####\s*(.+)$", re.MULTILINE)
_WORDS = re.compile(r"\banswer\s*(?:is|:)[\s:]*(?:\*\*(?=\s))?\s*(.+)", re.IGNORECASE)
_FRAMES = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{([^{}]*)\}")


def marked_answer(text: str) -> str | None:
    """Return the answer that a text marks as such, or None if it marks none."""
    text = after_reasoning(text)
    if (box := _last_box(text)) is not None:
        return _unframed(box)
    for pattern in (_TAG, _HASHES, _WORDS):
        if marked := pattern.findall(text):
            return _unframed(marked[-1])
    return None


def final_answer(text: str) -> str:
    """Return the answer that a text marks, else the text after its reasoning."""
    answer = marked_answer(text)
    return _unframed(after_reasoning(text)) if answer is None else answer


def after_reasoning(text: str) -> str:
    """Return the text after its reasoning; empty if the reasoning has not ended."""
    _, ended, rest = text.rpartition(_THOUGHT)
    if _THINK in rest:
        return ""
    return rest.strip() if ended else text.strip()


def plain(text: str) -> str:
    """Return a text with plain digits, signs, spaces and words, as keyboards have them."""
    text = unicodedata.normalize("NFKC", text)
    text = re.sub("[\u2010-\u2015\u2212]", "-", text)
    return " ".join(_TEXT.sub(r" \1 ", text).split())


def _last_box(text: str) -> str | None:
    """Return the text in the last closed box, or None if there is none."""
    for begin in reversed([match.end() for match in _BOX.finditer(text)]):
        depth = 1
        for place in range(begin, len(text)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if not depth:
                return text[begin:place]
    return None


def _unframed(text: str) -> str:
    """Return a text without marks around it (mathematics, bold, code) and a final full stop."""
    text = text.strip()
    changed = True
    while changed:
        changed = False
        for begin, end in _FRAMES:
            least = len(begin) + len(end)
            if len(text) > least and text.startswith(begin) and text.endswith(end):
                text = text[len(begin) : -len(end)].strip()
                changed = True
        if text.endswith(".") and not text.endswith(".."):
            text = text[:-1].rstrip()
            changed = True
    return text
