"""Both phases of a step through a back end: the same advantages and metrics in each layout."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch, Prepared
from seamlessflow.trainer.data.chains import Chain, Column, credited
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.packing import Layout, tokens_saved
from seamlessflow.trainer.data.turn_masks import masked_batch
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated, computed, needed
from seamlessflow.trainer.steps.inputs import of_step, step_input, step_updates
from tests.builders.trainer.chains import forked_chains
from tests.builders.trainer.groups import group
from tests.builders.trainer.models import logprobs, open_tiny, write_tiny

ALL: dict[str, Any] = {
    "advantage": "gae",
    "kl_penalty": 0.1,
    "returns": {"entropy_scale": 0.5, "hybrid_scale": 0.2},
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


def one_step(
    run_settings: TrainerSettings, model: Path
) -> tuple[list[float], dict[str, float], float]:
    """Return advantages of the trained tokens, metrics, and the share of tokens saved."""
    backend = TorchBackend(model, run_settings.trainer)
    backend.load(None, 0)
    backend.acquire()
    batch = annotated(run_settings.trainer, forked_batch(), backend)
    step = step_input(run_settings, batch, 0, 0, backend.remembered())
    advantages = [chain.tokens.advantages_T[chain.tokens.trained_T] for chain in batch.chains()]
    saved = tokens_saved(step.micro_batches).get("tokens_saved", 0.0)
    return np.concatenate(advantages).tolist(), dict(backend.train(step)), saved


@pytest.mark.parametrize("budget", [60, 1000])
def test_a_step_with_all_models_is_the_same_as_trees_and_as_single_chains(
    model: Path, every: dict[str, Any], budget: int
) -> None:
    wanted, metrics, _ = one_step(settings(model, **every), model)
    trees = settings(model, **every, layout="tree", micro_batch_tokens=budget)
    advantages, again, saved = one_step(trees, model)
    assert advantages == pytest.approx(wanted, abs=1e-5)
    assert again == pytest.approx(metrics, rel=1e-4, abs=1e-6)
    assert saved > 0.5


def test_a_step_is_the_same_when_it_is_executed_again(model: Path, every: dict[str, Any]) -> None:
    trees = settings(model, **every, layout="tree", micro_batch_tokens=60)
    assert one_step(trees, model) == one_step(trees, model)


@pytest.mark.parametrize("kind", ["model", "head"])
def test_a_critic_has_as_many_updates_as_the_policy_in_each_layout(model: Path, kind: str) -> None:
    section = {**ALL, "critic": {"kind": kind, "lr": 0.01}, "mini_batches": 2, "epochs": 2}
    single = settings(model, **section)
    wanted = updated(single, model)
    assert wanted["updates"] == 4
    assert wanted["value_loss"] > 0
    assert updated(single, model) == wanted
    trees = settings(model, **section, layout="tree", micro_batch_tokens=60)
    assert updated(trees, model) == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def updated(run_settings: TrainerSettings, model: Path) -> dict[str, float]:
    """Return the metrics of a second step of several updates, whose critic is not 0 any more."""
    backend = TorchBackend(model, run_settings.trainer)
    backend.load(None, 0)
    backend.acquire()
    for _ in range(2):
        batch = annotated(run_settings.trainer, forked_batch(), backend)
        made = step_updates(run_settings, batch, 0, 0, ())
        metrics = of_step([backend.train(update.input) for update in made])
    return metrics


def test_entropies_are_computed_only_to_scale_by_them(model: Path) -> None:
    assert needed(settings(model).trainer) == ()
    assert needed(settings(model, returns={"hybrid_scale": 0.0}).trainer) == ()
    assert needed(settings(model, returns={"entropy_scale": 0.5}).trainer) == (Column.ENTROPY,)
    both = (Column.ENTROPY, Column.TOP_SHARE)
    assert needed(settings(model, returns={"hybrid_scale": 0.1}).trainer) == both


@pytest.mark.parametrize(
    "section",
    [
        {"advantage": "distill"},
        {"advantage": "reinforce_pp", "kl_penalty": 0.1},
        {"advantage": "reinforce_pp_baseline", "kl_penalty": 0.1},
        {"advantage": "gae", "kl_penalty": 0.1},
        {"advantage": "turn_gae", "kl_penalty": 0.1},
    ],
    ids=lambda section: str(section["advantage"]),
)
def test_how_far_the_policy_is_from_another_is_measured_where_it_is_now(
    model: Path, reference: Path, section: dict[str, Any]
) -> None:
    """The tokens are of an older one, whose log-probs of them change nothing of that."""
    trainer = settings(model, reference=reference, teacher=reference, **section).trainer
    wanted = advantages_of(annotated(trainer, forked_batch(), TorchBackend(model, trainer)))
    older = by_chain(forked_batch(), lambda chain: with_logprobs(chain, -9.0))
    assert advantages_of(annotated(trainer, older, TorchBackend(model, trainer))) == wanted
    moved = annotated(trainer, forked_batch(), TorchBackend(reference, trainer))
    assert advantages_of(moved) != pytest.approx(wanted, abs=0.01)


def test_a_student_gains_the_difference_of_the_teacher_to_itself(
    model: Path, reference: Path
) -> None:
    trainer = settings(model, advantage="distill", teacher=reference).trainer
    batch = annotated(trainer, forked_batch(), TorchBackend(model, trainer))
    student, teacher = open_tiny(model), open_tiny(reference)
    for chain in batch.chains():
        ids = chain.tokens.ids_T.tolist()
        differences = np.subtract(logprobs(teacher, ids), logprobs(student, ids))
        trained_T = chain.tokens.trained_T
        advantages = chain.tokens.advantages_T[trained_T]
        assert advantages == pytest.approx(differences[trained_T], abs=1e-5)


def test_a_loss_gets_the_columns_that_it_sees_and_no_others(model: Path, reference: Path) -> None:
    returns = {"entropy_scale": 0.5, "hybrid_scale": 0.1}
    section = {"advantage": "distill", "teacher": reference, "returns": returns}
    assert columns_of(settings(model, **section), model) == set()
    assert columns_of(settings(model, **section, loss={"kl": 0.1}), model) == {Column.REFERENCE}
    twice = settings(model, **section, loss={"correction": "tis"}, epochs=2)
    assert columns_of(twice, model) == {Column.PROXIMAL}
    learned = {Column.VALUE, Column.TARGET, Column.TARGET_WEIGHT}
    assert columns_of(settings(model, advantage="gae", kl_penalty=0.1), model) == learned


def columns_of(run_settings: TrainerSettings, model: Path) -> set[Column]:
    batch = annotated(
        run_settings.trainer, forked_batch(), TorchBackend(model, run_settings.trainer)
    )
    return {name for chain in batch.chains() for name in chain.columns}


def advantages_of(batch: Batch) -> list[float]:
    advantages = [chain.tokens.advantages_T[chain.tokens.trained_T] for chain in batch.chains()]
    return [float(value) for value in np.concatenate(advantages)]


def by_chain(batch: Batch, change: Callable[[Chain], Chain]) -> Batch:
    """Return the batch with each chain changed."""
    groups = [
        replace(prepared, chains=tuple(map(change, prepared.chains))) for prepared in batch.groups
    ]
    return replace(batch, groups=tuple(groups))


def with_logprobs(chain: Chain, value: float) -> Chain:
    logprobs_T = np.full(len(chain), value, np.float32)
    return replace(chain, tokens=replace(chain.tokens, logprobs_T=logprobs_T))


def hybrid_factors(batch: Batch) -> NDArray[np.float64]:
    """Return 1 + 0.1 x (z(H) - z(c)) of the trained tokens, at most 2 deviations from 1."""
    distances = []
    for name in (Column.ENTROPY, Column.TOP_SHARE):
        values = np.concatenate([chain.columns[name] for chain in batch.chains()]).astype("f8")
        distances.append((values - values.mean()) / (values.std() + 1e-6))
    return np.asarray(1 + 0.1 * np.clip(distances[0] - distances[1], -2, 2))


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize(
    "section",
    [{}, {"advantage": "reinforce_pp_baseline", "kl_penalty": 0.5}, {"advantage": "gae"}],
    ids=["group", "penalty", "critic"],
)
def test_tokens_count_by_their_entropy_and_their_likeliest_whatever_the_estimator(
    model: Path, reference: Path, section: dict[str, Any], layout: Layout
) -> None:
    section = {**section, "reference": reference, "layout": layout, "micro_batch_tokens": 60}
    plain = settings(model, **section).trainer
    hybrid = settings(model, **section, returns={"hybrid_scale": 0.1}).trainer
    backend = TorchBackend(model, hybrid)
    factors = hybrid_factors(computed(hybrid, forked_batch(), backend))
    wanted = np.array(advantages_of(annotated(plain, forked_batch(), backend))) * factors
    assert len(set(factors.round(6).tolist())) > 6, "one for each token, not for each session"
    assert advantages_of(annotated(hybrid, forked_batch(), backend)) == pytest.approx(
        wanted, abs=1e-5
    )


def test_masked_tokens_are_not_in_the_mean_that_others_are_compared_with(model: Path) -> None:
    masks: dict[str, Any] = {"high_entropy_turns": {"keep": 0.5}}
    plain = settings(model, masks=masks).trainer
    hybrid = settings(model, masks=masks, returns={"hybrid_scale": 0.1}).trainer
    backend = TorchBackend(model, hybrid)
    whole = computed(hybrid, forked_batch(), backend)
    left = masked_batch(whole, masks)
    assert left.trained() < whole.trained()
    wanted = np.array(advantages_of(annotated(plain, forked_batch(), backend)))
    scaled = annotated(hybrid, forked_batch(), backend)
    assert advantages_of(scaled) == pytest.approx(wanted * hybrid_factors(left), abs=1e-6)


def test_a_scale_of_0_has_the_digits_of_a_run_without_it(model: Path) -> None:
    without = settings(model, returns={"entropy_scale": 0.5})
    zero = settings(model, returns={"entropy_scale": 0.5, "hybrid_scale": 0.0})
    assert one_step(zero, model) == one_step(without, model)
    above = settings(model, returns={"entropy_scale": 0.5, "hybrid_scale": 0.1})
    assert one_step(above, model) != one_step(without, model)


def test_entropies_scale_the_advantages_of_sessions(model: Path) -> None:
    plain, _, _ = one_step(settings(model), model)
    scaled, _, _ = one_step(settings(model, returns={"entropy_scale": 1.0}), model)
    factors = np.array(scaled) / np.array(plain)
    assert factors.mean() == pytest.approx(1.0, abs=1e-5)
    assert len(set(factors.round(6).tolist())) == 6, "one for each session"
