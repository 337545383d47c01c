"""The benchmark `algorithms`: three steps of its loop, its figures, and its files."""

import math
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from benchmarks.algorithms import main
from benchmarks.learning.curves import Curve, curve, prepared, read
from benchmarks.learning.draws import Draws
from benchmarks.learning.intervals import estimate, metric, table
from benchmarks.learning.loop import Point, Training
from benchmarks.learning.methods import (
    COMPARISONS,
    GROUP_SIZE,
    METHODS,
    POLICY,
    trainer_settings,
)
from benchmarks.learning.sampler import Completion
from benchmarks.learning.sessions import Played, PlayedTurn, Seat, recorded
from benchmarks.learning.tokens import reward_at, token_table, tokens_to
from benchmarks.trail.game import Walk, make_tasks
from benchmarks.trail.prepare import prepare
from seamlessflow.demo.task import arguments
from seamlessflow.schemas.tokens import pack
from seamlessflow.trainer.credit import EstimatorName
from seamlessflow.trainer.data.sessions import ValidSession
from seamlessflow.trainer.data.sessions import read as read_session

STEPS = 3
WARM_UP_STEPS = 40
"""Enough for calls in the right form."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("trail")
    prepare(directory, seed=0, warm_up_steps=WARM_UP_STEPS)
    return directory


def trained(method: str, data: Path) -> tuple[list[dict[str, float]], Point]:
    teacher = data / "model" if METHODS[method].taught else None
    training = Training(trainer_settings(METHODS[method], 3, STEPS, teacher), data)
    metrics = [training.advance() for _ in range(STEPS)]
    return metrics, training.evaluate()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["turn", "turn_gae", "distill", "ppo_clip"])
def test_three_steps_are_equal_for_equal_seeds(method: str, data: Path) -> None:
    metrics, point = trained(method, data)
    assert (metrics, point) == trained(method, data)
    assert point.step == STEPS
    assert point.tokens > 0


@pytest.mark.slow
def test_engine_and_trainer_agree_on_the_tokens_of_a_batch(data: Path) -> None:
    metrics, _ = trained("grpo", data)
    assert [step["mismatch_max"] < 1e-4 for step in metrics] == [True] * STEPS
    assert [step["grad_norm"] > 0 for step in metrics] == [True] * STEPS


def test_a_session_is_read_by_the_trainer_as_it_was_played() -> None:
    task = make_tasks(1, 0, "train")[0]
    walk = Walk(task)
    turns = []
    for number in range(2):
        walk.take(called(task["key"]))
        completion = Completion(bytearray(pack([7, 8])), bytearray(b"\0\0\0\xbf" * 2))
        turns.append(PlayedTurn(pack([number, 1, 2]), completion))
    played = Played(Seat(task, "g", 4, 8), walk, b"", b"", turns)
    session = read_session(recorded(played, POLICY, 5, "h"), POLICY, 0, 0)
    assert isinstance(session, ValidSession)
    (chain,) = session.chains
    assert chain.tokens.ids_T.tolist() == [0, 1, 2, 7, 8, 1, 1, 2, 7, 8]
    assert chain.tokens.trained_T.tolist() == [False, False, False, True, True] * 2
    assert chain.tokens.logprobs_T[chain.tokens.trained_T].tolist() == [-0.5] * 4
    assert set(chain.tokens.versions_T[chain.tokens.trained_T].tolist()) == {5}
    assert session.reward == walk.reward
    assert session.turn_rewards == {"turn-0": 1.0, "turn-1": walk.rewards[1]}


def called(key: int) -> dict[str, object]:
    call = {"function": {"name": "lookup", "arguments": arguments(key)}}
    return {"role": "assistant", "tool_calls": [call]}


def test_every_method_has_settings_that_the_trainer_accepts(tmp_path: Path) -> None:
    for name, method in METHODS.items():
        settings = trainer_settings(method, 0, STEPS, tmp_path if method.taught else None)
        assert settings.run.lag == method.age, name


def test_every_estimator_is_compared() -> None:
    compared = {method.trainer.get("advantage") for method in METHODS.values()}
    assert compared - {None} == set(get_args(EstimatorName))
    assert set(COMPARISONS) == {"advantages", "losses", "distillation", "kl", "samplers", "stored"}


def test_samplers_draw_as_the_scheduler_does() -> None:
    tasks = make_tasks(40, 0, "train")
    draws = Draws(tasks, {"sampler": {"name": "srpo"}}, seed=3)
    first = draws.next(40)
    assert sorted(task["id"] for _, task, _ in first) == sorted(task["id"] for task in tasks)
    for number, (name, _, samples) in enumerate(first):
        draws.ready(name, [1.0, float(number > 9)], [4, 4])
        assert samples == GROUP_SIZE
    draws.trained(1, [name for name, _, _ in first])
    kept = {task["id"] for _, task, _ in draws.next(10)}
    assert kept == {task["id"] for _, task, _ in first[:10]}, "those that did not pass whole"


def test_tokens_to_a_reward_lie_between_two_points() -> None:
    curve = tuple(Point(0, tokens, reward, ()) for tokens, reward in ((0, 0.1), (100, 0.6)))
    assert tokens_to(curve, 0.5) == pytest.approx(80)
    assert tokens_to(curve, 0.7) is None
    assert reward_at(curve, 50) == pytest.approx(0.35)
    assert reward_at(curve, 500) == 0.6


def test_methods_are_compared_at_equal_tokens() -> None:
    def drawn(method: str, seed: int, *points: tuple[int, float]) -> Curve:
        return Curve(
            method, seed, 2, tuple(Point(0, tokens, reward, ()) for tokens, reward in points), 1.0
        )

    base, other = token_table(
        [drawn("shuffled", 0, (0, 0), (400, 1.0)), drawn("vade", 0, (0, 0), (200, 1.0))],
        "shuffled",
    )
    assert (base.to_half, base.gain, base.reward.mean) == (200, None, 0.5)
    assert other.gain is not None and other.difference is not None
    assert (other.to_half, other.gain.mean, other.difference.mean) == (100, 2.0, 0.5)


def points(*rewards: float) -> tuple[Point, ...]:
    return tuple(Point(10 * place, 0, reward, ()) for place, reward in enumerate(rewards))


def test_the_metric_is_the_mean_of_the_last_quarter() -> None:
    assert metric(points(0, 0, 0, 0.5, 0.7, 1), steps=50) == pytest.approx(0.85)


def test_an_interval_is_that_of_students_t() -> None:
    interval = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert interval.mean == 3.0
    assert interval.half == pytest.approx(1.9634, abs=1e-3)
    assert math.isnan(estimate([1.0]).half)


def test_a_difference_is_taken_over_the_seeds_that_both_have() -> None:
    base = Curve("grpo", 0, 20, points(0, 0, 0.5), 1.0)
    curves = [base, replace(base, method="turn", points=points(0, 0, 0.75))]
    curves += [replace(base, seed=1, points=points(0, 0, 0.1))]
    first, second = table(curves, "grpo")
    assert (first.method, first.seeds, first.difference) == ("grpo", 2, None)
    assert second.difference is not None
    assert second.difference.mean == pytest.approx(0.25)


@pytest.mark.slow
def test_a_sweep_makes_only_what_is_missing(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data-seed0").symlink_to(data)
    assert prepared(0, tmp_path) == tmp_path / "data-seed0"
    names: list[str] = []
    made = curve("grpo", 0, STEPS, tmp_path, lambda name, _: names.append(name))
    assert curve("grpo", 0, STEPS, tmp_path, lambda name, _: names.append("again")) == made
    assert names == ["grpo-seed0-steps3"]
    (file,) = (tmp_path / "curves").iterdir()
    assert read(file) == made
    main(["--quick", "--methods", "grpo,rloo", "--out", str(tmp_path)])
    assert '"rloo"' in capsys.readouterr().out
    assert (tmp_path / "advantages.png").stat().st_size > 0
