"""Text games of TextArena: what a player observes is the policy's conversation.

With several players, each is a role with its own session. A game draws from its process's random
state, so a process plays one game at a time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_RAW = "-raw"
"""Ending of the games' names whose observations have only what is new, not all so far."""


class Environment:
    """Games by name, each with `size` seeds from `seed` on."""

    concurrent = 1

    def __init__(
        self,
        games: list[str],
        size: int = 100,
        seed: int = 0,
        system: str = "",
        players: int = 1,
        shown: Sequence[tuple[str, str]] = (),
        **options: Any,
    ) -> None:
        """`shown`: observations with their answers, which stand before each game. `options`: for
        each call, such as `max_tokens`.
        """
        self._games = games
        self._seeds = range(seed, seed + size)
        self._before = [{"role": "system", "content": system}] if system else []
        for observed, answer in shown:
            self._before.append({"role": "user", "content": observed})
            self._before.append({"role": "assistant", "content": answer})
        self._players = range(players)
        self.roles = [f"player_{player}" for player in self._players] if players > 1 else []
        self._options = options

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Yield each game with each seed."""
        for game in self._games:
            for seed in self._seeds:
                place = {"id": f"{game}-{seed}", "game": game, "seed": seed}
                yield {**place, "metadata": {"game": game}}

    def warm_up(self) -> None:
        """Begin each game once. Raises `ValueError` for a game that cannot be played here."""
        count = len(self._players)
        players = f"{count} players" if count > 1 else "one player"
        for game in self._games:
            try:
                _begun(game, 0, count).close()
            except Exception as error:
                raise ValueError(f"{game} cannot be played by {players} here: {error}") from error

    async def run(self, task: Mapping[str, Any], session: Any) -> dict[str, Any]:
        """Play to the end; each player's reward is the game's."""
        game = _begun(task["game"], task["seed"], len(self._players))
        sessions = [session[role] for role in self.roles] or [session]
        talks = [list(self._before) for _ in sessions]
        over = False
        while not over:
            player, observed = game.get_observation()
            text = "\n".join(words for speaker, words, _ in observed if speaker != player)
            talks[player].append({"role": "user", "content": text})
            answer = await sessions[player].ask(talks[player], **self._options)
            talks[player].append({"role": "assistant", "content": answer.content or ""})
            over, _ = game.step(answer.content or "")
        rewards, facts = game.close()
        results = [_result(rewards[player], facts[player]) for player in self._players]
        return dict(zip(self.roles, results, strict=True)) if self.roles else results[0]


def _result(reward: float, facts: Mapping[str, Any]) -> dict[str, Any]:
    valid = float(not facts.get("invalid_move"))
    return {"reward": float(reward), "rewards": {"valid": valid}}


def _begun(game: str, seed: int, players: int) -> Any:
    import textarena

    begun = textarena.make(env_id=game if game.endswith(_RAW) else game + _RAW)
    begun.reset(num_players=players, seed=seed)
    return begun
