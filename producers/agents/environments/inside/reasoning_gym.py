"""Tasks of reasoning-gym: a question, and an answer that the package scores.

The data set, its settings, size, seed and index determine an entry. Each episode builds it again
from these, since some answers do not survive JSON. With `strict`, an answer is worth 1 or 0.
Without it the package also gives partial rewards, some only for the answer's length.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
_BETWEEN_TAGS = "\nGive the final answer between <answer> and </answer>."
_ALONE = "\nGive the final answer alone."


class Environment:
    """Data sets by name, each with its own settings."""

    def __init__(
        self,
        datasets: list[str] | dict[str, dict[str, Any]],
        size: int = 500,
        seed: int = 0,
        strict: bool = False,
        between_tags: bool = True,
        system: str = "",
        shown: Sequence[tuple[str, str]] = (),
        **options: Any,
    ) -> None:
        """`between_tags`: the policy is asked to mark its answer; else all that it says is the
        answer. `shown`: questions with their answers, which stand before each question.
        `options`: for each call, such as `max_tokens`.
        """
        named = datasets if isinstance(datasets, dict) else {name: {} for name in datasets}
        self._datasets: dict[str, dict[str, Any]] = named
        self._size = size
        self._seed = seed
        self._strict = strict
        self._between_tags = between_tags
        self._before = [{"role": "system", "content": system}] if system else []
        for question, answer in shown:
            self._before.append(self._question(question))
            self._before.append({"role": "assistant", "content": answer})
        self._options = options

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield what each entry is built from, with the package's own difficulty as metadata."""
        for name, config in self._datasets.items():
            built = {"dataset": name, "config": config, "size": self._size, "seed": self._seed}
            entries = _entries(built)
            for index in range(self._size):
                difficulty = entries[index]["metadata"].get("difficulty") or {}
                words = {key: str(value) for key, value in difficulty.items()}
                place = {"id": f"{name}-{self._seed}-{index}", "index": index}
                # Only this sum decides an entry: seed 1 repeats all entries of seed 0 but one.
                drawn = f"{name} {json.dumps(config, sort_keys=True)} {self._seed + index}"
                metadata = {"dataset": name, **words}
                yield {**built, **place, "drawn_from": drawn, "metadata": metadata}

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Ask once; the reward is the package's score for the answer."""
        entries = _entries(task)
        entry = entries[task["index"]]
        question = self._question(entry["question"])
        message = await session.ask([*self._before, question], **self._options)
        score = float(entries.score_answer(self._answer(message.content or ""), entry))
        return {"reward": float(score >= 1) if self._strict else score, "rewards": {"score": score}}

    def _question(self, text: str) -> dict[str, str]:
        asked = _BETWEEN_TAGS if self._between_tags else _ALONE
        return {"role": "user", "content": text + asked}

    def _answer(self, text: str) -> str | None:
        if not self._between_tags:
            return text.strip()
        answers = _ANSWER.findall(text)
        return answers[-1].strip() if answers else None


def _entries(task: Mapping[str, Any]) -> Any:
    return _dataset(task["dataset"], task["size"], task["seed"], json.dumps(task["config"]))


@cache
def _dataset(name: str, size: int, seed: int, config: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(name, size=size, seed=seed, **json.loads(config))
