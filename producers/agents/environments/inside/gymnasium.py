"""Text worlds of Gymnasium: those with numbered actions.

The policy sees what the world prints, or else its state, and answers with an action's number.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_NUMBER = re.compile(r"\d+")
_COLOUR = re.compile(r"\x1b\[(?!0m)[0-9;]*m")
_PLAIN = "\x1b[0m"


class Environment:
    """Worlds by name, each with `size` seeds from `seed` on."""

    def __init__(
        self,
        worlds: list[str] | dict[str, dict[str, Any]],
        size: int = 100,
        seed: int = 0,
        actions: dict[str, list[str]] | None = None,
        turns: int = 50,
        **options: Any,
    ) -> None:
        """`worlds`: names, or names with arguments for `gymnasium.make`. `actions`: words for a
        world's actions. `turns`: step limit. `options`: for each call, such as `max_tokens`.
        """
        named = worlds if isinstance(worlds, dict) else {name: {} for name in worlds}
        self._worlds: dict[str, dict[str, Any]] = named
        self._seeds = range(seed, seed + size)
        self._actions = actions or {}
        self._turns = turns
        self._options = options

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield each world with each seed."""
        for world, arguments in self._worlds.items():
            for seed in self._seeds:
                place = {"id": f"{world}-{seed}", "world": world, "seed": seed}
                yield {**place, "arguments": arguments, "metadata": {"world": world}}

    def warm_up(self) -> None:
        """Make each world once. Raises `ValueError` for one without numbered actions."""
        for world, arguments in self._worlds.items():
            made = _made(world, arguments)
            if not hasattr(made.action_space, "n"):
                raise ValueError(f"{world} has no numbered actions, but {made.action_space}")
            made.close()

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Act until the world ends; the reward is the sum over its steps. An answer without an
        action's number ends the episode.
        """
        world = _made(task["world"], task["arguments"])
        state, _ = world.reset(seed=task["seed"])
        text = f"{self._choice(task['world'], world)}\n\n{_shown(world, state)}"
        messages: list[dict[str, Any]] = []
        total = 0.0
        readable = 1.0
        for _ in range(self._turns):
            messages.append({"role": "user", "content": text})
            answer = await session.ask(messages, **self._options)
            messages.append({"role": "assistant", "content": answer.content or ""})
            number = _NUMBER.search(answer.content or "")
            if number is None or int(number[0]) >= world.action_space.n:
                readable = 0.0
                break
            state, reward, ended, cut, _ = world.step(int(number[0]))
            total += float(reward)
            if ended or cut:
                break
            text = _shown(world, state)
        world.close()
        return {"reward": total, "rewards": {"readable": readable}}

    def _choice(self, name: str, world: Any) -> str:
        words = self._actions.get(name) or [""] * int(world.action_space.n)
        listed = ", ".join(f"{number} {word}".strip() for number, word in enumerate(words))
        return f"{name}. Answer with the number of an action: {listed}."


def _made(world: str, arguments: Mapping[str, Any]) -> Any:
    import gymnasium

    made = gymnasium.make(world, **arguments)
    if "ansi" not in made.metadata.get("render_modes", ()):
        return made
    made.close()
    return gymnasium.make(world, render_mode="ansi", **arguments)


def _shown(world: Any, state: Any) -> str:
    """Return what the world prints, with a coloured place in brackets, or else its state."""
    if world.render_mode != "ansi":
        return str(state)
    return _COLOUR.sub("[", str(world.render())).replace(_PLAIN, "]")
