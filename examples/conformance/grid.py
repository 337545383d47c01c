"""Corridors in a grid: from one corner to the other, with walls that the seed draws.

An environment has `reset(seed)`, `actions()` and `step(action)`. This implementation is the plain
one, against which `grid_by_table.py` is compared.
"""

import random

SIZE = 5
LONGEST = 40
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


class Grid:
    def reset(self, seed):
        """Begin an episode; return its first observation."""
        draw = random.Random(seed)
        cells = [(row, column) for row in range(SIZE) for column in range(SIZE)]
        self.walls = set(draw.sample(cells[1:-1], SIZE))
        self.place, self.steps = (0, 0), 0
        return self.seen()

    def actions(self):
        """Return the actions that are possible now."""
        return ["stay", *(name for name in MOVES if self.free(name))]

    def step(self, action):
        """Take an action; return observation, reward, and whether the episode is over."""
        self.steps += 1
        if action != "stay":
            self.place = self.behind(action)
        home = self.place == (SIZE - 1, SIZE - 1)
        return self.seen(), 1.0 if home else -0.01, home or self.steps == LONGEST

    def seen(self):
        return {"place": self.place, "free": [self.free(name) for name in MOVES]}

    def free(self, name):
        row, column = self.behind(name)
        return 0 <= row < SIZE and 0 <= column < SIZE and (row, column) not in self.walls

    def behind(self, name):
        (row, column), (down, right) = self.place, MOVES[name]
        return row + down, column + right
