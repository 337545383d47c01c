"""The models beside the policy: what they compute for tokens, and how the critic learns."""

from dataclasses import replace
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import get_args

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from seamlessflow.trainer.backends.backend import ModelUnusable, StepInput
from seamlessflow.trainer.backends.torch_backend import TorchBackend
from seamlessflow.trainer.data.chains import Chain, Column, credited
from seamlessflow.trainer.data.credit.phase import by_chain
from seamlessflow.trainer.data.packing import Layout, pack
from seamlessflow.trainer.settings import TrainerSection
from tests.builders.trainer.chains import forked_chains, some_chains
from tests.builders.trainer.models import SIZES, open_tiny, write_tiny


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("policy"), seed=0)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("other"), seed=1)


def opened(policy: Path, **settings: object) -> TorchBackend:
    backend = TorchBackend(
        policy, TrainerSection.model_validate({"device": "cpu", "threads": 1, **settings})
    )
    backend.load(None, 0)
    backend.acquire()
    return backend


def annotated(
    backend: TorchBackend, chains: list[Chain], column: Column, layout: Layout, budget: int = 32
) -> list[list[float]]:
    """Return a column of the trained tokens of each chain."""
    packed = pack(chains, budget, layout)
    columns = by_chain(chains, packed, backend.annotate(packed, [column]))
    return [chain_columns[column].tolist() for chain_columns in columns]


def directly(directory: Path, chain: Chain) -> list[float]:
    """Return the log-probs of the trained tokens under a model, one chain at a time."""
    model, tokens = open_tiny(directory), chain.tokens
    with torch.no_grad():
        table = model(torch.from_numpy(tokens.ids_T.astype(np.int64))[None]).logits[0]
    return [
        float((table[n - 1] / float(tokens.temperatures_T[n])).log_softmax(-1)[tokens.ids_T[n]])
        for n in np.flatnonzero(tokens.trained_T)
    ]


@pytest.mark.parametrize("layout", get_args(Layout))
@pytest.mark.parametrize("column", [Column.REFERENCE, Column.TEACHER])
def test_a_frozen_model_tells_its_own_log_probs(
    policy: Path, other: Path, column: Column, layout: Layout
) -> None:
    settings = {
        Column.REFERENCE: {"advantage": "gae", "kl_penalty": 0.1, "reference": other},
        Column.TEACHER: {"advantage": "distill", "teacher": other},
    }[column]
    chains = forked_chains(3)
    logprobs = annotated(opened(policy, **settings), chains, column, layout)
    for chain, values in zip(chains, logprobs, strict=True):
        assert values == pytest.approx(directly(other, chain), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_entropies_are_those_of_the_policy_before_the_step(policy: Path, layout: Layout) -> None:
    chains = forked_chains(3)
    backend = opened(policy, returns={"entropy_scale": 1.0})
    column = annotated(backend, chains, Column.ENTROPY, layout)
    for chain, values in zip(chains, column, strict=True):
        ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
        table = open_tiny(policy)(ids[None]).logits[0].detach().log_softmax(-1)
        entropies = -(table.exp() * table).sum(-1)[np.flatnonzero(chain.tokens.trained_T) - 1]
        assert values == pytest.approx(entropies.tolist(), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("layout", get_args(Layout))
def test_top_shares_are_those_of_the_five_likeliest_at_the_token_s_temperature(
    policy: Path, layout: Layout
) -> None:
    chains = [tempered(chain) for chain in forked_chains(3)]
    backend = opened(policy, returns={"hybrid_scale": 0.1})
    column = annotated(backend, chains, Column.TOP_SHARE, layout)
    for chain, values in zip(chains, column, strict=True):
        ids = torch.from_numpy(chain.tokens.ids_T.astype(np.int64))
        places = np.flatnonzero(chain.tokens.trained_T)
        temperatures = torch.from_numpy(chain.tokens.temperatures_T)[places][:, None]
        table = open_tiny(policy)(ids[None]).logits[0].detach()[places - 1] / temperatures
        shares = table.softmax(-1).sort(descending=True).values[:, :5].sum(-1)
        assert values == pytest.approx(shares.tolist(), rel=1e-6, abs=1e-6)
        assert all(0 < value < 1 for value in values)


def tempered(chain: Chain) -> Chain:
    """Return the chain as if each token had been sampled at a temperature of its own."""
    temperatures_T = np.linspace(0.5, 1.5, len(chain), dtype=np.float32)
    return replace(chain, tokens=replace(chain.tokens, temperatures_T=temperatures_T))


@pytest.mark.parametrize("kind", [{}, {"advantage": "gae", "critic": {"kind": "head"}}])
def test_all_columns_of_the_policy_are_those_of_each_alone(
    policy: Path, kind: dict[str, object]
) -> None:
    chains = forked_chains(3)
    backend = opened(policy, returns={"hybrid_scale": 0.1}, **kind)
    names = [Column.TOP_SHARE, Column.PROXIMAL, Column.ENTROPY]
    packed = pack(chains, 32, "tree")
    together = backend.annotate(packed, names)
    for name in names:
        alone = backend.annotate(packed, [name])[name]
        for column_N, other_N in zip(together[name], alone, strict=True):
            assert column_N.tolist() == other_N.tolist()


def test_the_reference_is_the_first_policy_by_default(policy: Path) -> None:
    chains = some_chains(3)
    backend = opened(policy, advantage="reinforce_pp", kl_penalty=0.1)
    backend.train(learning(chains, [0.0] * 6, 1.0))
    (values, *_) = annotated(backend, chains, Column.REFERENCE, "padded")
    assert values == pytest.approx(directly(policy, chains[0]), rel=1e-6, abs=1e-6)


def test_a_teacher_with_another_vocabulary_is_refused(policy: Path, tmp_path: Path) -> None:
    stranger = copytree(policy, tmp_path / "stranger")
    (stranger / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelUnusable, match=r"its tokenizer\.json is not that of the policy"):
        opened(policy, advantage="distill", teacher=stranger)


def learning(chains: list[Chain], before: list[float], target: float) -> StepInput:
    """Return a step in which the critic learns one return everywhere, and the policy nothing."""
    count = sum(chain.trained() for chain in chains)
    made = []
    for chain, value in zip(chains, before, strict=True):
        ones = np.ones(chain.trained(), np.float32)
        columns = {
            Column.VALUE: ones * value,
            Column.TARGET: ones * target,
            Column.TARGET_WEIGHT: ones / count,
        }
        made.append(replace(chain, columns=columns))
    return StepInput(pack(made, 32, "padded"), [], 0, 0.0)


def values(backend: TorchBackend, chains: list[Chain]) -> list[float]:
    column = annotated(backend, chains, Column.VALUE, "padded")
    return [value for chain_values in column for value in chain_values]


def test_a_critic_begins_at_zero_and_learns_returns(policy: Path) -> None:
    chains = some_chains(1)
    backend = opened(policy, advantage="gae", critic={"lr": 0.01, "clip": 10.0})
    assert values(backend, chains) == pytest.approx([0.0] * sum(c.trained() for c in chains))
    losses = [backend.train(learning(chains, [0.0] * 6, 1.0))["value_loss"] for _ in range(30)]
    assert losses[0] == pytest.approx(0.5)
    assert losses[-1] < 0.05
    assert np.mean(values(backend, chains)) == pytest.approx(1.0, abs=0.3)


def test_a_value_that_is_beyond_the_clip_on_its_way_has_no_gradient(policy: Path) -> None:
    """(0 - 1)^2 is less than (-1 + 0.2 - 1)^2, which does not depend on the value."""
    chains = some_chains(1)
    backend = opened(policy, advantage="gae", critic={"lr": 0.01, "clip": 0.2})
    metrics = backend.train(learning(chains, [-1.0] * 6, 1.0))
    assert metrics["value_loss"] == pytest.approx(0.5 * 1.8**2)
    assert not any(values(backend, chains))


@pytest.mark.parametrize("layout", get_args(Layout))
def test_values_do_not_depend_on_packing(policy: Path, layout: Layout) -> None:
    chains = forked_chains(2)
    backend = opened(policy, advantage="gae", critic={"lr": 0.01})
    backend.train(learning(chains, [0.0] * len(chains), 1.0))
    alone = [annotated(backend, [chain], Column.VALUE, "padded")[0] for chain in chains]
    together = annotated(backend, chains, Column.VALUE, layout, budget=1000)
    for expected, other in zip(alone, together, strict=True):
        assert other == pytest.approx(expected, abs=1e-6)


def test_a_critic_goes_on_from_a_checkpoint_to_the_digit(policy: Path, tmp_path: Path) -> None:
    chains, settings = some_chains(1), {"advantage": "turn_gae", "critic": {"lr": 0.01}}
    first = opened(policy, **settings)
    first.train(learning(chains, [0.0] * 6, 1.0))
    first.snapshot()
    first.save(tmp_path)
    first.train(learning(chains, [0.1] * 6, 1.0))
    second = opened(policy, **settings)
    second.load(tmp_path, 1)
    second.train(learning(chains, [0.1] * 6, 1.0))
    assert values(second, chains) == values(first, chains)


def test_a_checkpoint_without_a_critic_is_refused(policy: Path, tmp_path: Path) -> None:
    before = opened(policy)
    before.snapshot()
    before.save(tmp_path)
    with pytest.raises(ModelUnusable, match="its critic cannot be read"):
        opened(policy, advantage="gae").load(tmp_path, 1)


def test_the_divergence_from_the_reference_is_told_from_the_first_step_on(policy: Path) -> None:
    backend = opened(policy, loss={"kl": 0.1}, optimizer={"lr": 0.1})
    chains = some_chains(3)
    packed = pack(chains, 32, "padded")
    columns = by_chain(chains, packed, backend.annotate(packed, [Column.REFERENCE]))
    pairs = zip(chains, columns, strict=True)
    made = [replace(credited(chain, 1.0), columns=chain_columns) for chain, chain_columns in pairs]
    step = StepInput(pack(made, 32, "padded"), [], 0, 0.1)
    first, second = backend.train(step), backend.train(step)
    assert first["reference_kl"] == pytest.approx(0.0, abs=1e-9)
    assert second["reference_kl"] > 0


def stepped(backend: TorchBackend, chains: list[Chain], version: int) -> None:
    """Train a step, which ends as each step of a run does."""
    packed = pack(chains, 32, "padded")
    columns = by_chain(chains, packed, backend.annotate(packed, [Column.REFERENCE]))
    pairs = zip(chains, columns, strict=True)
    made = [replace(credited(chain, 1.0), columns=chain_columns) for chain, chain_columns in pairs]
    backend.train(StepInput(pack(made, 32, "padded"), [], 0, 0.1))
    backend.remember(version)


def compared(backend: TorchBackend, chains: list[Chain]) -> tuple[list[float], list[float]]:
    """Return the log-probs of the tokens under the reference and under the policy."""
    columns = (Column.REFERENCE, Column.PROXIMAL)
    first, second = (annotated(backend, chains, name, "padded") for name in columns)
    return [value for logprobs in first for value in logprobs], [
        value for logprobs in second for value in logprobs
    ]


RENEWED = {"loss": {"kl": 0.1}, "reference_every": 2, "optimizer": {"lr": 0.1}}


def test_the_reference_becomes_the_policy_every_so_many_steps(policy: Path) -> None:
    backend, chains = opened(policy, **RENEWED), some_chains(3)
    initial, _ = compared(backend, chains)
    stepped(backend, chains, 1)
    assert compared(backend, chains)[0] == initial
    stepped(backend, chains, 2)
    renewed, of_policy = compared(backend, chains)
    assert renewed == of_policy != initial
    stepped(backend, chains, 3)
    kept, of_policy = compared(backend, chains)
    assert kept == renewed != of_policy
    stepped(backend, chains, 4)
    again, of_policy = compared(backend, chains)
    assert again == of_policy != renewed


def test_without_that_setting_the_reference_stays(policy: Path) -> None:
    backend, chains = opened(policy, **{**RENEWED, "reference_every": None}), some_chains(2)
    initial, _ = compared(backend, chains)
    for version in range(1, 4):
        stepped(backend, chains, version)
    assert compared(backend, chains)[0] == initial


def test_a_renewed_reference_goes_on_from_a_checkpoint_to_the_digit(
    policy: Path, tmp_path: Path
) -> None:
    first, chains = opened(policy, **RENEWED), some_chains(3)
    for version in (1, 2, 3):
        stepped(first, chains, version)
    first.snapshot()
    first.save(tmp_path)
    second = opened(policy, **RENEWED)
    second.load(tmp_path, 3)
    assert compared(second, chains) == compared(first, chains)
    for version in (4, 5):
        stepped(first, chains, version)
        stepped(second, chains, version)
        assert compared(second, chains) == compared(first, chains)


def test_a_checkpoint_of_a_run_that_renewed_none_begins_with_the_reference_that_is_named(
    policy: Path, other: Path, tmp_path: Path
) -> None:
    before = opened(policy, loss={"kl": 0.1}, reference=other)
    before.snapshot()
    before.save(tmp_path)
    after = opened(policy, **RENEWED, reference=other)
    after.load(tmp_path, 7)
    chains = some_chains(1)
    expected = [value for chain in chains for value in directly(other, chain)]
    assert compared(after, chains)[0] == pytest.approx(expected, abs=1e-6)


def test_a_reference_of_another_shape_cannot_become_the_policy(
    policy: Path, tmp_path: Path
) -> None:
    config = Qwen3Config(**{**SIZES, "intermediate_size": 8})
    Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    copytree(
        policy, tmp_path, dirs_exist_ok=True, ignore=ignore_patterns("*.safetensors", "config*")
    )
    with pytest.raises(ModelUnusable, match="reference_every makes the policy of it"):
        opened(policy, **RENEWED, reference=tmp_path)
