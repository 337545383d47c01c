"""Text games of TextArena for one player: what the player observes is the policy's conversation.

A game draws from the random state of its process, so a process plays one game at a time.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_RAW = "-raw"
"""Ending of the names whose observations are what is new, and not all so far."""


class Environment:
    """Games by their names, each with `size` seeds from `seed` on."""

    concurrent = 1

    def __init__(
        self, games: list[str], size: int = 100, seed: int = 0, system: str = "", **options: Any
    ) -> None:
        """`options`: of each call, such as `max_tokens`."""
        self._games = games
        self._seeds = range(seed, seed + size)
        self._system = [{"role": "system", "content": system}] if system else []
        self._options = options

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield each game with each seed."""
        for game in self._games:
            for seed in self._seeds:
                place = {"id": f"{game}-{seed}", "game": game, "seed": seed}
                yield {**place, "metadata": {"game": game}}

    def warm_up(self) -> None:
        """Begin each game once. Raises what one for more players, or without its data, raises."""
        for game in self._games:
            try:
                _begun(game, 0).close()
            except Exception as error:
                raise ValueError(f"{game} cannot be played by one player here: {error}") from error

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Play to the end; the reward is the game's."""
        game = _begun(task["game"], task["seed"])
        messages = list(self._system)
        over = False
        while not over:
            player, observed = game.get_observation()
            text = "\n".join(words for speaker, words, _ in observed if speaker != player)
            messages.append({"role": "user", "content": text})
            answer = await session.ask(messages, **self._options)
            messages.append({"role": "assistant", "content": answer.content or ""})
            over, _ = game.step(answer.content or "")
        rewards, facts = game.close()
        valid = float(not facts[0].get("invalid_move"))
        return {"reward": float(rewards[0]), "rewards": {"valid": valid}}


def _begun(game: str, seed: int) -> Any:
    import textarena

    begun = textarena.make(env_id=game if game.endswith(_RAW) else game + _RAW)
    begun.reset(num_players=1, seed=seed)
    return begun
