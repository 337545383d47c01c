"""Both phases of a step through a back end: the same advantages and metrics in each layout."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.rendering.settings import RendererSettings
from tests.builders.trainer.chains import forked_chains
from tests.builders.trainer.groups import group
from tests.builders.trainer.models import write_tiny
from trainer.backends.torch_backend import TorchBackend
from trainer.data.batch import Batch, Prepared
from trainer.data.chains import Chain, credited
from trainer.data.credit.columns import Column
from trainer.data.grouping import Group
from trainer.data.packing import tokens_saved
from trainer.policy import PolicySection
from trainer.settings import TrainerSection, TrainerSettings
from trainer.steps.annotation import annotated, needed
from trainer.steps.inputs import of_step, step_input, step_updates

ALL: dict[str, Any] = {
    "advantage": "gae",
    "kl_penalty": 0.1,
    "returns": {"entropy_scale": 0.5},
    "loss": {"kl": 0.01, "surrogate": "gspo", "aggregation": "sequence_mean"},
    "critic": {"lr": 0.01},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("other"), seed=1)


@pytest.fixture(params=[{}, {"kind": "head", "coefficient": 0.1}], ids=["model", "head"])
def every(request: pytest.FixtureRequest, reference: Path) -> dict[str, Any]:
    """Return settings that need every model, with a reference of other weights."""
    critic = {**ALL["critic"], **request.param}
    return {**ALL, "critic": critic, "reference": reference}


def forked_batch() -> Batch:
    """Return two groups with a prompt each, of three sessions that fork."""
    by_group: dict[str, list[Chain]] = defaultdict(list)
    for chain in forked_chains():
        by_group[chain.session_id.split(".")[0]].append(credited(chain, 1.0))
    return Batch(0, tuple(_prepared(name, chains) for name, chains in by_group.items()))


def _prepared(name: str, chains: list[Chain]) -> Prepared:
    made: Group = group(name, 0.0, 1.0, 3.0)
    return Prepared(made, tuple(chains))


def settings(model: Path, **trainer: Any) -> TrainerSettings:
    return TrainerSettings(
        policy=PolicySection(model=model, renderer=RendererSettings("qwen3")),
        trainer=TrainerSection.model_validate({"device": "cpu", "threads": 1, **trainer}),
    )


def one_step(of: TrainerSettings, model: Path) -> tuple[list[float], dict[str, float], float]:
    """Return advantages of the trained tokens, metrics, and the share of tokens saved."""
    backend = TorchBackend(model, of.trainer)
    backend.load(None, 0)
    backend.acquire()
    batch = annotated(of.trainer, forked_batch(), backend)
    step = step_input(of, batch, 0, 0, backend.remembered())
    advantages = [chain.tokens.advantages_T[chain.tokens.trained_T] for chain in batch.chains()]
    saved = tokens_saved(step.micro_batches).get("tokens_saved", 0.0)
    return np.concatenate(advantages).tolist(), dict(backend.train(step)), saved


@pytest.mark.parametrize("budget", [60, 1000])
def test_a_step_with_all_models_is_the_same_as_trees_and_as_single_chains(
    model: Path, every: dict[str, Any], budget: int
) -> None:
    wanted, metrics, _ = one_step(settings(model, **every), model)
    trees = settings(model, **every, layout="tree", micro_batch_tokens=budget)
    found, again, saved = one_step(trees, model)
    assert found == pytest.approx(wanted, abs=1e-5)
    assert again == pytest.approx(metrics, rel=1e-4, abs=1e-6)
    assert saved > 0.5


def test_a_step_is_the_same_when_it_is_executed_again(model: Path, every: dict[str, Any]) -> None:
    trees = settings(model, **every, layout="tree", micro_batch_tokens=60)
    assert one_step(trees, model) == one_step(trees, model)


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_critic_has_as_many_updates_as_the_policy_in_each_layout(model: Path, kind: str) -> None:
    own = {**ALL, "critic": {"kind": kind, "lr": 0.01}, "mini_batches": 2, "epochs": 2}
    single = settings(model, **own)
    wanted = updated(single, model)
    assert wanted["updates"] == 4
    assert wanted["value_loss"] > 0
    assert updated(single, model) == wanted
    trees = settings(model, **own, layout="tree", micro_batch_tokens=60)
    assert updated(trees, model) == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def updated(of: TrainerSettings, model: Path) -> dict[str, float]:
    """Return the metrics of a second step of several updates, whose critic is not 0 any more."""
    backend = TorchBackend(model, of.trainer)
    backend.load(None, 0)
    backend.acquire()
    for _ in range(2):
        batch = annotated(of.trainer, forked_batch(), backend)
        made = step_updates(of, batch, 0, 0, ())
        found = of_step([backend.train(one.input) for one in made])
    return found


def test_entropies_are_computed_only_to_scale_by_them(model: Path) -> None:
    assert needed(settings(model).trainer) == ()
    assert needed(settings(model, returns={"entropy_scale": 0.5}).trainer) == (Column.ENTROPY,)


def test_entropies_scale_the_advantages_of_sessions(model: Path) -> None:
    plain, _, _ = one_step(settings(model), model)
    scaled, _, _ = one_step(settings(model, returns={"entropy_scale": 1.0}), model)
    factors = np.array(scaled) / np.array(plain)
    assert factors.mean() == pytest.approx(1.0, abs=1e-5)
    assert len(set(factors.round(6).tolist())) == 6, "one for each session"
