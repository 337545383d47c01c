"""Four sessions that act in one world, tick by tick.

A group is a world, and each of its samples is a player with a session of its own. All of a group's
sessions run in one process, so they meet in `WORLDS`. Berries grow in ten cells. In each tick every
player sees the berry nearest to its own place and names a cell. It moves there and eats; players in
one cell share. Advantages compare the players of a world with each other.
"""

import asyncio
import re

from openai import AsyncOpenAI

CELLS, FURTHER = 10, 3
PATIENCE_S = 60
"""Most time that a player waits for the others. Then the world goes on without them."""
WORLDS = {}
"""Worlds under way, by group."""


async def run(task, session, patience=PATIENCE_S):
    client = AsyncOpenAI(
        base_url=session.base_url, api_key=session.api_key, http_client=session.http_client
    )
    group, sample, _ = session.session_id.rsplit(".", 2)
    player = int(sample)
    world = WORLDS.setdefault(group, World(task["places"], task["berries"], patience))
    messages, rewards = [], {}
    try:
        for _ in range(task["ticks"]):
            messages.append({"role": "user", "content": f"key {world.seen(player)}"})
            answer = await client.chat.completions.create(
                model=session.model, messages=messages, max_tokens=16
            )
            text = answer.choices[0].message.content or ""
            messages.append({"role": "assistant", "content": text})
            named = re.findall(r"\d", text)
            eaten = await world.act(player, int(named[0]) if named else None)
            rewards[answer.id] = eaten[player]
    finally:
        world.leave(player)
        if not world.players:
            WORLDS.pop(group, None)
    return {"reward": sum(rewards.values()) / task["ticks"], "turn_rewards": rewards}


class World:
    """Berries, the place of each player, and what players do in the tick under way."""

    def __init__(self, places, berries, patience):
        self.patience = patience
        self.places, self.berries = list(places), set(berries)
        self.players = set(range(len(places)))
        """Those that a tick waits for."""
        self.begin()

    def begin(self):
        self.actions = {}
        self.tick = asyncio.get_running_loop().create_future()

    def seen(self, player):
        """Return the cell of the berry nearest to a player."""
        place = self.places[player]
        return min(self.berries, key=lambda cell: (abs(cell - place), cell))

    async def act(self, player, cell):
        """Name a cell, or stay (None); return what each player ate, once all have acted."""
        self.players.add(player)
        self.actions[player] = cell
        tick = self.tick
        if self.players <= self.actions.keys():
            self.end()
        try:
            return await asyncio.wait_for(asyncio.shield(tick), self.patience)
        except TimeoutError:
            if tick is self.tick:
                self.players &= self.actions.keys()
                self.end()
            return tick.result()

    def leave(self, player):
        """Go on without a player."""
        self.players.discard(player)
        if self.actions and self.players <= self.actions.keys():
            self.end()

    def end(self):
        """End the tick: all move at once and eat, then each eaten berry grows further on."""
        for player, cell in self.actions.items():
            self.places[player] = self.places[player] if cell is None else cell
        cells = [self.places[player] for player in self.actions]
        eaten = {
            player: (cell in self.berries) / cells.count(cell)
            for player, cell in zip(self.actions, cells, strict=True)
        }
        gone = self.berries & set(cells)
        self.berries = (self.berries - gone) | {(cell + FURTHER) % CELLS for cell in gone}
        self.tick.set_result(eaten)
        self.begin()
