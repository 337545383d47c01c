"""Clients of games, as their code calls the endpoint: Orak's loop, MindAgent's prompts."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import openai
import pytest
from pydantic import BaseModel

from seamlessflow.infra.settings import KafkaSettings
from seamlessflow.schemas import records as r
from seamlessflow.trainer.data.chains import chains
from tests.e2e.parity import PARITY, plain_logprobs
from tests.e2e.running_system import POLICY, RunningSystem, client_of, running_system

pytestmark = pytest.mark.kafka

TURNS = 20
STEPS = 6
"""Steps of a game whose prompts are rebuilt."""
SIZE = 3
"""A small board, so that all turns fit into the model's 512 tokens."""
DIRECTIONS = ("left", "right", "up", "down")
Board = list[list[int]]


@pytest.fixture(scope="module")
def flow(
    broker: KafkaSettings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningSystem, Path]]:
    with running_system(broker, tmp_path_factory.mktemp("games")) as made:
        weights = made.publish_weights(0, seed=1)
        made.start_gateway()
        made.start("manager", "seamlessflow.consumers.trajectories")
        made.start_worker("w0")
        made.give_role("w0", 0)
        made.await_ready()
        yield made, weights


def test_a_loop_of_2048_with_orak_s_calls_is_one_trajectory(
    flow: tuple[RunningSystem, Path],
) -> None:
    made, weights = flow
    client = client_of(made, "orak")
    source = random.Random(0)  # nosec B311 # repeatable draws
    board = with_tile([[0] * SIZE for _ in range(SIZE)], source)
    messages: list[dict[str, object]] = [{"role": "system", "content": "Play 2048."}]
    for _ in range(TURNS):
        messages.append({"role": "user", "content": shown(board)})
        answer = client.chat.completions.create(
            model=POLICY,
            messages=messages,  # type: ignore[arg-type]
            max_tokens=3,
        )
        said = answer.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": said})
        # As its agents do with an answer that names no move: any.
        direction = next((name for name in DIRECTIONS if name in said), source.choice(DIRECTIONS))
        board = with_tile(moved(board, direction), source)

    trajectory = made.end("orak")

    assert trajectory.turns == TURNS
    assert [node.parent for node in trajectory.nodes][1:] == list(range(len(trajectory.nodes) - 1))
    assert_each_behind_its_own_prompt(weights, trajectory, branches=1)


class Move(BaseModel):
    """A move of 2048, for the client's `parse`."""

    direction: Literal["left", "right", "up", "down"]


def test_a_parsed_answer_is_refused_in_words_by_an_engine_without_grammars(
    flow: tuple[RunningSystem, Path],
) -> None:
    made, _ = flow
    with pytest.raises(openai.BadRequestError, match="no structured output"):
        client_of(made, "parsed").beta.chat.completions.parse(
            model=POLICY, messages=[{"role": "user", "content": "go"}], response_format=Move
        )
    made.end("parsed")


def test_an_image_of_a_game_is_refused_in_words(flow: tuple[RunningSystem, Path]) -> None:
    made, _ = flow
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(openai.BadRequestError, match="image_url"):
        client_of(made, "image").chat.completions.create(
            model=POLICY,
            messages=[{"role": "user", "content": [image]}],  # type: ignore[list-item,misc]
        )
    made.end("image")


def test_a_prompt_that_is_rebuilt_each_step_is_a_branch_of_its_own(
    flow: tuple[RunningSystem, Path],
) -> None:
    """MindAgent's: a base text and the last two entries, in one message."""
    made, weights = flow
    client = client_of(made, "kitchen")
    entries: list[str] = []
    for step in range(STEPS):
        content = "\n".join(["You direct two cooks.", *entries[-2:], f"time {step}"])
        answer = client.chat.completions.create(
            model=POLICY, messages=[{"role": "user", "content": content}], max_tokens=12
        )
        entries.append(f"action {step}: {answer.choices[0].message.content}")

    trajectory = made.end("kitchen")

    parents = {node.parent for node in trajectory.nodes}
    leaves = [place for place in range(len(trajectory.nodes)) if place not in parents]
    assert (trajectory.turns, len(leaves)) == (STEPS, STEPS)
    assert_each_behind_its_own_prompt(weights, trajectory, branches=STEPS)


def assert_each_behind_its_own_prompt(
    weights: Path, trajectory: r.Trajectory, branches: int
) -> None:
    """Check the log-prob of each sampled token of so many branches by a plain forward pass."""
    read = chains(trajectory, POLICY).chains
    assert len(read) == branches
    for branch in read:
        tokens = branch.tokens
        plain = plain_logprobs(weights, tokens.ids_T.astype(np.int32).tobytes())
        trained = tokens.trained_T[1:]
        np.testing.assert_allclose(tokens.logprobs_T[1:][trained], plain[trained], atol=PARITY)


def shown(board: Board) -> str:
    """Return a board in few tokens: the exponents of its tiles."""
    return "".join(str(tile.bit_length()) for row in board for tile in row)


def moved(board: Board, direction: str) -> Board:
    """Return the board after a move."""
    if direction in ("up", "down"):
        turned = [list(row) for row in zip(*board, strict=True)]
        rows = moved(turned, "left" if direction == "up" else "right")
        return [list(row) for row in zip(*rows, strict=True)]
    if direction == "right":
        return [slid(row[::-1])[::-1] for row in board]
    return [slid(row) for row in board]


def slid(row: list[int]) -> list[int]:
    """Return a row with its tiles slid to the left; equal neighbours become one tile."""
    tiles = [tile for tile in row if tile]
    merged: list[int] = []
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tile += tiles.pop(0)
        merged.append(tile)
    return merged + [0] * (len(row) - len(merged))


def with_tile(board: Board, source: random.Random) -> Board:
    """Return the board with one more tile, if there is room."""
    free = [(y, x) for y, row in enumerate(board) for x, tile in enumerate(row) if not tile]
    changed = [list(row) for row in board]
    if free:
        y, x = source.choice(free)
        changed[y][x] = 2
    return changed
