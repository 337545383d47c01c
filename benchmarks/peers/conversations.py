"""Sessions and rewards as TRL's trainer asks for them. Imports nothing from TRL."""

from collections.abc import Mapping
from typing import Any

from benchmarks.peers.shape import Shape, Sum


class Rewards:
    """Each session's reward, by what the model said in its turns."""

    __name__ = "right"

    def __init__(self, tasks: Mapping[str, Sum]) -> None:
        self._tasks = tasks

    def __call__(self, prompts: list[Any], completions: list[Any], **further: Any) -> list[float]:
        """Return the rewards; sessions with several turns bring their `texts`."""
        texts = further.get("texts") or [[said[0]["content"]] for said in completions]
        return [
            self._tasks[prompt[-1]["content"]].reward(said)
            for prompt, said in zip(prompts, texts, strict=True)
        ]


class Conversations:
    """Sessions with several turns, as a `rollout_func`: a whole generation for each turn."""

    def __init__(self, tasks: Mapping[str, Sum], shape: Shape) -> None:
        self._tasks = tasks
        self._shape = shape

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """Return prompts and continuations as ids, with the mask of sampled ones."""
        tokenizer = trainer.processing_class
        questions = [self._tasks[prompt[-1]["content"]].questions() for prompt in prompts]
        started = _rendered(tokenizer, prompts, generation=True)
        ids: list[list[int]] = [[] for _ in prompts]
        masks: list[list[int]] = [[] for _ in prompts]
        texts: list[list[str]] = [[] for _ in prompts]
        for turn in range(self._shape.turns):
            if turn:
                for session, asked in enumerate(questions):
                    suffix = _suffix(tokenizer, asked[turn], ids[session][-1])
                    ids[session] += suffix
                    masks[session] += [0] * len(suffix)
            whole = [prompt + said for prompt, said in zip(started, ids, strict=True)]
            answers, _ = trainer._generate_single_turn(whole, None, {}, 1)
            for session, answer in enumerate(answers):
                ids[session] += answer
                masks[session] += [1] * len(answer)
                texts[session].append(tokenizer.decode(answer, skip_special_tokens=True))
        return {
            "prompt_ids": started,
            "completion_ids": ids,
            "logprobs": None,
            "env_mask": masks,
            "texts": texts,
        }


def _rendered(tokenizer: Any, chats: list[Any], generation: bool) -> list[list[int]]:
    made = tokenizer.apply_chat_template(
        chats, tokenize=True, add_generation_prompt=generation, return_dict=True
    )
    return list(made["input_ids"])


def _suffix(tokenizer: Any, question: str, last: int) -> list[int]:
    """Return the ids between an answer that ends with the id `last` and the next one.

    The template writes an end and a line break behind an answer; one that was cut lacks the end.
    """
    chat = [{"role": "user", "content": "-"}, {"role": "assistant", "content": "-"}]
    asked = {"role": "user", "content": question}
    (before,) = _rendered(tokenizer, [chat], generation=False)
    (after,) = _rendered(tokenizer, [[*chat, asked]], generation=True)
    lacking = 1 if last == tokenizer.eos_token_id else 2
    return after[len(before) - lacking :]
