"""A step that compares pairs: its gradient is that of the mean loss of its pairs in each layout."""

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from seamlessflow.infra.rendering.settings import RendererSettings
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.batch import Batch, prepare
from seamlessflow.trainer.data.chains import Chain, Column
from seamlessflow.trainer.data.grouping import Group
from seamlessflow.trainer.data.packing import Layout
from seamlessflow.trainer.data.sessions import ValidSession, read
from seamlessflow.trainer.data.staleness import StepClock
from seamlessflow.trainer.policy import PolicySection
from seamlessflow.trainer.settings import TrainerSection, TrainerSettings
from seamlessflow.trainer.steps.annotation import annotated, needed
from seamlessflow.trainer.steps.inputs import batch_rules, step_input
from tests.builders.trainer.chains import forked_sessions
from tests.builders.trainer.models import open_tiny, write_tiny

TO_ONE: dict[str, Any] = {
    "loss": {"surrogate": "pairs_squared"},
    "pairs": {"reference_share": 1.0, "eta": 0.05},
}
LOGISTIC: dict[str, Any] = {
    "loss": {"surrogate": "pairs_logistic"},
    "pairs": {"name": "all", "beta": 0.5},
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("other"), seed=1)


def settings(model: Path, **trainer: Any) -> TrainerSettings:
    return TrainerSettings(
        policy=PolicySection(model=model, renderer=RendererSettings("qwen3")),
        trainer=TrainerSection.model_validate({"device": "cpu", "threads": 1, **trainer}),
    )


def batch(run_settings: TrainerSettings) -> Batch:
    """Return two groups of three sessions that fork, with the returns 0, 0.5 and 1."""
    groups = []
    for number, made in enumerate(forked_sessions()):
        sessions = [read(trajectory, "tiny", 0, place) for place, trajectory in enumerate(made)]
        valid = tuple(session for session in sessions if isinstance(session, ValidSession))
        rules = batch_rules(run_settings)
        groups.append(prepare(Group(f"g-{number}", valid), StepClock({}, 0), rules))
    return Batch(0, tuple(groups))


def by_backend(
    run_settings: TrainerSettings, model: Path
) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return gradients and metrics of a step."""
    backend = TorchBackend(model, run_settings.trainer)
    backend.load(None, 0)
    ready = annotated(run_settings.trainer, batch(run_settings), backend)
    step = step_input(run_settings, ready, 0, 0, ())
    *_, gradients = backend.gradients(step)
    copies = {name: gradient.clone() for name, gradient in gradients.items()}
    return copies, dict(backend.train(step))


def logprob(model: Any, chains: list[Chain], mean: bool) -> Tensor:
    """Return the log-prob of a session, a chain at a time, with its gradient."""
    parts = []
    for chain in chains:
        ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
        table = model(ids[None]).logits[0].double().log_softmax(-1)
        parts += [table[n - 1, ids[n]] for n in np.flatnonzero(chain.tokens.trained_T)]
    tokens = torch.stack(parts)
    return tokens.mean() if mean else tokens.sum()


def directly(made: Batch, model: Path, reference: Path, section: dict[str, Any]) -> Any:
    """Return the mean loss of the pairs and its gradient, with whole pairs in one graph."""
    policy, other = open_tiny(model), open_tiny(reference)
    mean = section["loss"]["surrogate"] == "pairs_squared"
    losses = []
    for group in made.groups:
        for pair in group.pairs:
            margin = torch.zeros((), dtype=torch.float64)
            for name, sign in zip(pair.names, (1, -1), strict=True):
                chains = [chain for chain in group.chains if chain.session_id == name]
                with torch.no_grad():
                    fixed = logprob(other, chains, mean)
                margin = margin + sign * (logprob(policy, chains, mean) - fixed)
            far = (margin - 1 / (2 * section["pairs"].get("eta", 1))) ** 2
            near = -torch.nn.functional.logsigmoid(section["pairs"].get("beta", 1) * margin)
            losses.append(far if mean else near)
    loss = torch.stack(losses).mean()
    torch.autograd.backward(loss)
    return loss.item(), {name: value.grad for name, value in policy.named_parameters()}


@pytest.mark.parametrize("budget", [16, 1000])
@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("section", [TO_ONE, LOGISTIC], ids=["squared", "logistic"])
def test_loss_and_gradient_are_those_of_whole_pairs_however_they_are_laid_out(
    model: Path, reference: Path, section: dict[str, Any], layout: Layout, budget: int
) -> None:
    chosen = settings(
        model, **section, reference=reference, layout=layout, micro_batch_tokens=budget
    )
    loss, wanted = directly(batch(chosen), model, reference, section)
    gradients, metrics = by_backend(chosen, model)
    assert metrics["loss"] == pytest.approx(loss, rel=1e-5)
    for name, gradient in gradients.items():
        scale = float(wanted[name].abs().max())
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-3, atol=1e-5 * scale, msg=name)


def test_a_step_is_the_same_when_it_is_executed_again(model: Path, reference: Path) -> None:
    chosen = settings(model, **LOGISTIC, reference=reference, layout="tree", micro_batch_tokens=16)
    first, second = by_backend(chosen, model), by_backend(chosen, model)
    assert first[1] == second[1]
    assert all(torch.equal(first[0][name], second[0][name]) for name in first[0])


def test_at_the_reference_all_margins_are_0_and_the_gradient_is_that_of_log_probs(
    model: Path,
) -> None:
    _, metrics = by_backend(settings(model, **TO_ONE), model)
    assert metrics["loss"] == pytest.approx((1 / (2 * 0.05)) ** 2, rel=1e-5)
    _, metrics = by_backend(settings(model, **LOGISTIC), model)
    assert metrics["loss"] == pytest.approx(np.log(2), rel=1e-4)
    assert metrics["grad_norm"] > 0


def test_regularisers_add_to_the_loss_of_pairs(model: Path, reference: Path) -> None:
    plain = settings(model, **TO_ONE, reference=reference)
    loss = {**TO_ONE["loss"], "kl": 0.5, "kl_estimator": "k2"}
    with_kl = settings(model, pairs=TO_ONE["pairs"], loss=loss, reference=reference)
    _, without = by_backend(plain, model)
    _, metrics = by_backend(with_kl, model)
    assert metrics["reference_kl"] > 0
    assert metrics["loss"] > without["loss"]


@pytest.mark.parametrize(
    ("section", "columns"),
    [
        (LOGISTIC, {Column.PROXIMAL, Column.REFERENCE}),
        (TO_ONE, {Column.PROXIMAL, Column.REFERENCE}),
        (
            {"loss": {"surrogate": "pairs_squared"}},
            {Column.PROXIMAL, Column.REFERENCE, Column.OPPONENT_1, Column.OPPONENT_2},
        ),
    ],
    ids=["logistic", "one reference", "opponents"],
)
def test_a_step_computes_the_columns_that_its_margins_have(
    model: Path, section: dict[str, Any], columns: set[Column]
) -> None:
    assert set(needed(settings(model, **section).trainer)) == columns
