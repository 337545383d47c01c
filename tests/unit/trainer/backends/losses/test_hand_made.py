"""Losses of two or three tokens, computed by hand: surrogates, corrections and what names mean."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.losses.loss import token_losses
from seamlessflow.trainer.loss import LossName, LossSection
from tests.builders.trainer.losses import loss_tokens
from tests.seed import seed


def losses(
    ratios: list[float],
    advantages: list[float],
    sessions: list[int] | None = None,
    engine: float = 0.0,
    **settings: object,
) -> tuple[list[float], list[float], list[bool]]:
    """Loss, gradient to the log-prob, and whether it was clipped, of each token."""
    chosen = LossSection.model_validate(settings)
    engine_N = torch.full((len(ratios),), engine, dtype=torch.float64)
    ratios_N = torch.tensor(ratios, dtype=torch.float64)
    logprobs_N = (engine_N + ratios_N.log()).requires_grad_()
    advantages_N = torch.tensor(advantages, dtype=torch.float64)
    units = sessions or []
    tokens = loss_tokens(logprobs_N, engine_N, advantages_N, chosen, units, units)
    terms = token_losses(tokens, chosen)
    torch.autograd.backward(terms.loss_N.sum())
    assert logprobs_N.grad is not None
    return terms.loss_N.tolist(), logprobs_N.grad.tolist(), terms.clipped_N.tolist()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 2.0, -2.0, False),
        (1.2, 2.0, -2.4, False),
        (1.5, 2.0, -2.56, True),
        (0.5, 2.0, -1.0, False),
        (0.9, -2.0, 1.8, False),
        (0.5, -2.0, 1.6, True),
        (1.5, -2.0, 3.0, False),
    ],
)
def test_ppo_clips_where_the_step_would_go_too_far(
    ratio: float, advantage: float, loss: float, clipped: bool
) -> None:
    ((value,), (gradient,), (was_clipped,)) = losses([ratio], [advantage])
    assert value == pytest.approx(loss)
    assert was_clipped == clipped
    assert gradient == pytest.approx(0 if clipped else -ratio * advantage)


def test_dual_clip_bounds_tokens_with_a_negative_advantage_alone() -> None:
    values, gradients, clipped = losses([4.0, 2.0, 4.0], [-1.0, -1.0, 1.0], dual_clip=3)
    assert values == pytest.approx([3.0, 2.0, -1.28])
    assert gradients == pytest.approx([0.0, 2.0, 0.0])
    assert clipped == [True, False, True]


def test_ppo_bounds_negative_advantages_at_three_unless_told_otherwise() -> None:
    """A token that the policy finds e^8 times likelier would be the whole gradient of a step."""
    far = math.exp(8)
    cases: list[tuple[dict[str, Any], float]] = [
        ({}, 0.0),
        ({"dual_clip": 0}, far),
        ({"dual_clip": 5000}, far),
    ]
    for settings, slope in cases:
        values, gradients, clipped = losses([2.9, far], [-1.0, -1.0], **settings)
        assert gradients == pytest.approx([2.9, slope])
        assert values == pytest.approx([2.9, slope or 3.0])
        assert clipped == [False, not slope]


def test_sapo_weighs_a_token_less_the_further_its_ratio_is_on_either_side() -> None:
    settings: dict[str, Any] = {"surrogate": "sapo", "gate_positive": 1.0, "gate_negative": 2.0}
    values, gradients, clipped = losses([1.0, 3.0, 1.0, 3.0], [1.0, 1.0, -1.0, -1.0], **settings)
    # 4 / t sigmoid(t (r - 1)), and its slope r 4 s (1 - s): at r = 1 that of r.
    s, t = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(-4))
    assert values == pytest.approx([-2.0, -4 * s, 1.0, 2 * t])
    assert gradients == pytest.approx([-1.0, -12 * s * (1 - s), 1.0, 12 * t * (1 - t)])
    assert clipped == [False] * 4


@pytest.mark.parametrize(
    ("engine", "ratio", "advantage", "clipped"),
    [
        # From 0.1 to 0.25 is a ratio of 2.5, and 0.15 in probability; to 0.35 it is 0.25.
        (0.1, 2.5, 1.0, False),
        (0.1, 3.5, 1.0, True),
        (0.1, 3.5, -1.0, False),  # back towards the old policy
        (0.9, 0.7, -1.0, True),
        (0.9, 0.7, 1.0, False),
        (1e-5, 100.0, 1.0, False),
        (0.5, 1.5, 0.0, False),
    ],
)
def test_dppo_stops_tokens_by_the_change_of_probability(
    engine: float, ratio: float, advantage: float, clipped: bool
) -> None:
    for divergence, bound in (("tv", 0.2), ("kl", 0.1)):
        values, gradients, cut = losses(
            [ratio],
            [advantage],
            engine=math.log(engine),
            surrogate="dppo",
            divergence=divergence,
            divergence_bound=bound,
        )
        assert cut == [clipped]
        assert values == gradients == pytest.approx([0 if clipped else -ratio * advantage])


def test_gspo_gives_all_tokens_of_a_session_the_geometric_mean_of_their_ratios() -> None:
    # The mean of 4 and 1/4 is 1, where PPO would clip both; that of 4 and 1 is 2, beyond the bound.
    ratios, sessions = [4.0, 0.25, 4.0, 1.0], [0, 0, 1, 1]
    values, gradients, clipped = losses(ratios, [1.0] * 4, sessions, surrogate="gspo")
    assert values == pytest.approx([-1.0, -1.0, -1.28, -1.28])
    assert gradients == pytest.approx([-1.0, -1.0, 0.0, 0.0])
    assert clipped == [False, False, True, True]


def test_cispo_weighs_and_never_stops() -> None:
    values, gradients, clipped = losses([1.0, 8.0], [1.0, 1.0], surrogate="cispo", cap=2)
    assert values == pytest.approx([0.0, -2 * math.log(8)])
    assert gradients == pytest.approx([-1.0, -2.0])
    assert clipped == [False, True]


def test_the_policy_gradient_does_not_see_who_sampled() -> None:
    values, gradients, _ = losses([0.1, 9.0], [2.0, -1.0], surrogate="policy_gradient")
    assert values == gradients == pytest.approx([-2.0, 1.0])


def test_cloning_raises_every_token_whatever_its_advantage() -> None:
    values, gradients, _ = losses([1.0, 1.0], [5.0, -3.0], engine=-0.7, surrogate="cloning")
    assert values == pytest.approx([0.7, 0.7])
    assert gradients == [-1.0, -1.0]


def test_one_weight_of_a_session_is_the_product_of_its_ratios_up_to_the_cap() -> None:
    results = losses(
        [3.0, 0.5, 3.0, 0.1],
        [1.0] * 4,
        [0, 0, 1, 1],
        surrogate="policy_gradient",
        correction="tis",
        correction_level="session",
        cap=1.2,
    )
    assert results[1] == pytest.approx([-1.2, -1.2, -0.3, -0.3])
    assert results[2] == [True, True, False, False]


def test_icepop_leaves_out_tokens_whose_ratio_is_far_from_one() -> None:
    ratios = [1.1, 8.0, 0.125]
    _, gradients, clipped = losses(ratios, [1.0] * 3, surrogate="ppo_clip", correction="icepop")
    assert gradients == pytest.approx([-1.1, 0.0, 0.0])
    assert clipped == [False, True, True]


def test_the_bounds_of_icepop_may_be_those_of_its_paper() -> None:
    ratios = [0.45, 0.55, 4.5, 5.5]
    settings: dict[str, Any] = {"surrogate": "policy_gradient", "correction": "icepop", "cap": 5.0}
    _, gradients, clipped = losses(ratios, [1.0] * 4, floor=0.5, **settings)
    assert gradients == pytest.approx([0.0, -0.55, -4.5, 0.0])
    assert clipped == [True, False, False, True]
    assert losses(ratios, [1.0] * 4, **settings)[2] == [False, False, False, True], "from 1 / 5"


def gone(
    ratios: list[float], advantages: list[float], sessions: list[int], **masks: object
) -> list[bool]:
    """Return the tokens that have no gradient under a policy gradient with these masks."""
    settings: dict[str, Any] = {"surrogate": "policy_gradient", "masks": masks}
    values, gradients, clipped = losses(ratios, advantages, sessions, **settings)
    assert [value == 0 for value in gradients] == [value == 0 for value in values] == clipped
    return clipped


def test_sessions_leave_by_the_geometric_mean_of_their_ratios() -> None:
    # Means 1, 1.5 and 0.5.
    ratios, sessions = [4.0, 0.25, 1.5, 1.5, 1.0, 0.25], [0, 0, 1, 1, 2, 2]
    for bounds, left in (
        ({"low": 0.6, "high": 1.4}, {1, 2}),
        ({"high": 1.4}, {1}),
        ({"low": 0.6}, {2}),
    ):
        masked = gone(ratios, [1.0] * 6, sessions, geometric_mean=bounds)
        assert masked == [session in left for session in sessions]


def test_an_outlier_leaves_alone_or_with_its_session() -> None:
    ratios, sessions = [1.0, 1e-5, 1.0, 1.2], [0, 0, 1, 1]
    alone = gone(ratios, [1.0] * 4, sessions, outlier={"low": 1e-4, "level": "token"})
    assert alone == [False, True, False, False]
    whole = gone(ratios, [1.0] * 4, sessions, outlier={"low": 1e-4})
    assert whole == [True, True, False, False]
    assert gone(ratios, [1.0] * 4, sessions, outlier={"high": 1.1}) == [False, False, True, True]


def test_off_policy_sessions_leave_where_their_advantage_is_negative() -> None:
    # Mean log(engine / policy) is log 2 in the first two, and -log 2 in the last one.
    ratios, sessions = [0.5, 0.5, 0.5, 0.5, 2.0, 2.0], [0, 0, 1, 1, 2, 2]
    advantages = [-1.0, -1.0, 1.0, 1.0, -1.0, -1.0]
    assert gone(ratios, advantages, sessions, off_policy={"most": 0.5}) == [True] * 2 + [False] * 4
    assert gone(ratios, advantages, sessions, off_policy={"most": 0.7}) == [False] * 6


def test_masked_tokens_keep_their_regularisers() -> None:
    """The divergence is one of every token, whether or not the policy learns from it."""
    logprobs_N = torch.tensor([0.01, 0.5], dtype=torch.float64).log().requires_grad_()
    engine_N = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    reference_N = torch.tensor([0.2, 0.2], dtype=torch.float64).log()
    chosen = LossSection.model_validate({"kl": 1.0, "masks": {"outlier": {"low": 0.1}}})
    tokens = loss_tokens(
        logprobs_N, engine_N, torch.ones(2).double(), chosen, reference_N=reference_N
    )
    terms = token_losses(tokens, chosen)
    assert terms.clipped_N.tolist() == [True, False]
    x = math.log(0.2 / 0.01)
    assert terms.loss_N[0].item() == pytest.approx(math.exp(x) - x - 1)


def test_with_a_correction_and_one_update_three_surrogates_have_one_gradient() -> None:
    ratios, advantages = [0.3, 1.1, 5.0], [1.0, -2.0, 0.5]
    gradients = [
        losses(ratios, advantages, surrogate=name, correction="tis")[1]
        for name in ("ppo_clip", "gspo", "cispo", "policy_gradient")
    ]
    cut = losses(ratios, advantages, surrogate="cispo")[1]
    assert gradients == [pytest.approx(cut)] * 4


def recorded(name: LossName, x_N: Tensor, advantages_N: Tensor) -> tuple[Tensor, Tensor]:
    """The losses that logs mean by these names, as they were when those were the only ones."""
    ratios_N = x_N.clamp(-20, 20).exp()
    match name:
        case "ppo_clip":
            free_N, bound_N = ratios_N * advantages_N, ratios_N.clamp(1 - 0.2, 1.28) * advantages_N
            return -torch.minimum(free_N, bound_N), bound_N < free_N
        case "tis":
            weights_N = ratios_N.detach().clamp(max=2.0)
            return -weights_N * advantages_N * x_N, ratios_N > 2.0
        case "icepop":
            outside_N = (ratios_N > 2.0) | (ratios_N < 1 / 2.0)
            return torch.where(outside_N, 0.0, -ratios_N * advantages_N), outside_N


@pytest.mark.parametrize("name", ["ppo_clip", "tis", "icepop"])
def test_a_name_means_the_same_to_the_digit_as_in_recorded_runs(name: LossName) -> None:
    torch.manual_seed(0)
    engine_N, own_N, advantages_N = (torch.randn(500) for _ in range(3))
    one_N, other_N = own_N.clone().requires_grad_(), own_N.clone().requires_grad_()
    wanted_N, clipped_N = recorded(name, one_N - engine_N, advantages_N)
    torch.autograd.backward(wanted_N.sum() * (1 / 500))
    # A bound of ratios with a negative advantage is a default of later releases.
    settings = LossSection(name=name, dual_clip=0 if name == "ppo_clip" else None)
    terms = token_losses(loss_tokens(other_N, engine_N, advantages_N, settings), settings)
    torch.autograd.backward((terms.loss_N * torch.full((500,), 1 / 500)).sum())
    assert terms.loss_N.equal(wanted_N)
    assert terms.clipped_N.equal(clipped_N)
    assert one_N.grad is not None and other_N.grad is not None
    assert other_N.grad.equal(one_N.grad)


@pytest.mark.parametrize(
    ("estimator", "values", "slopes"),
    [
        # x = log 2, 0 and -log 2; the slope is -x for k2, and 1 - exp(x) for k3.
        (
            "k2",
            [math.log(2) ** 2 / 2, 0, math.log(2) ** 2 / 2],
            [-math.log(2), 0, math.log(2)],
        ),
        ("k3", [1 - math.log(2), 0, math.log(2) - 0.5], [-1, 0, 0.5]),
    ],
)
def test_the_divergence_from_the_reference_is_added(
    estimator: str, values: list[float], slopes: list[float]
) -> None:
    logprobs_N = torch.full((3,), -2.0, dtype=torch.float64, requires_grad=True)
    reference_N = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64).log() - 2
    chosen = LossSection.model_validate({"kl": 0.5, "kl_estimator": estimator})
    without = logprobs_N.detach()
    tokens = loss_tokens(
        logprobs_N, without, torch.zeros_like(without), chosen, reference_N=reference_N
    )
    losses_N = token_losses(tokens, chosen).loss_N
    torch.autograd.backward(losses_N.sum())
    assert losses_N.tolist() == pytest.approx([0.5 * value for value in values])
    assert logprobs_N.grad is not None
    assert logprobs_N.grad.tolist() == pytest.approx([0.5 * slope for slope in slopes])


FAR = math.exp(20)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    ("estimator", "logprob", "reference", "slope"),
    [
        ("k2", -0.1, -19.0, 18.9),
        ("k2", -0.1, -25.0, 24.9),
        ("k2", -0.1, -400.0, 399.9),
        ("k2", -25.0, -0.1, -24.9),
        ("k3", -0.1, -25.0, 1.0),
        ("k3", -0.1, -400.0, 1.0),
        # exp(x) alone is bounded, and goes on with the slope at the bound.
        ("k3", -20.0, -0.1, 1 - math.exp(19.9)),
        ("k3", -25.0, -0.1, 1 - FAR),
        ("k3", -400.0, -0.1, 1 - FAR),
    ],
)
def test_a_token_far_from_the_reference_is_drawn_back_to_it(
    dtype: torch.dtype, estimator: str, logprob: float, reference: float, slope: float
) -> None:
    logprobs_N = torch.tensor([logprob], dtype=dtype, requires_grad=True)
    chosen = LossSection.model_validate({"kl": 0.5, "kl_estimator": estimator})
    without = logprobs_N.detach()
    columns = without, torch.zeros_like(without)
    tokens = loss_tokens(
        logprobs_N, *columns, chosen, reference_N=torch.tensor([reference], dtype=dtype)
    )
    losses_N = token_losses(tokens, chosen).loss_N
    torch.autograd.backward(losses_N)
    assert losses_N.item() >= 0
    assert logprobs_N.grad is not None
    assert logprobs_N.grad.item() == pytest.approx(0.5 * slope, rel=1e-5)


def test_the_mean_gradient_of_k2_is_that_of_the_divergence_and_that_of_k3_of_the_other_one() -> (
    None
):
    """Over all tokens of a vocabulary, weighed by their probability under the policy."""
    made = torch.Generator().manual_seed(seed)
    logits_V = torch.randn(7, generator=made, dtype=torch.float64).requires_grad_()
    reference_V = torch.randn(7, generator=made, dtype=torch.float64).log_softmax(-1)
    policy_V = logits_V.log_softmax(-1)
    wanted = {
        "k2": (policy_V.exp() * (policy_V - reference_V)).sum(),
        "k3": (reference_V.exp() * (reference_V - policy_V)).sum(),
    }
    for estimator, whole in wanted.items():
        chosen = LossSection.model_validate({"kl": 1.0, "kl_estimator": estimator})
        tokens = loss_tokens(
            policy_V, policy_V.detach(), torch.zeros(7), chosen, reference_N=reference_V
        )
        mean = (policy_V.detach().exp() * token_losses(tokens, chosen).loss_N).sum()
        (gradient_V,) = torch.autograd.grad(mean, logits_V, retain_graph=True)
        (exact,) = torch.autograd.grad(whole, logits_V, retain_graph=True)
        assert gradient_V.tolist() == pytest.approx(exact.tolist(), abs=1e-12), estimator


def test_k3_weighed_with_the_ratio_has_value_and_gradient_of_the_divergence_for_older_tokens() -> (
    None
):
    """Over all tokens of a vocabulary, weighed by their probability under an older policy."""
    made = torch.Generator().manual_seed(seed)
    logits_V = torch.randn(7, generator=made, dtype=torch.float64).requires_grad_()
    reference_V, older_V = (
        torch.randn(7, generator=made, dtype=torch.float64).log_softmax(-1) for _ in range(2)
    )
    policy_V = logits_V.log_softmax(-1)
    whole = (policy_V.exp() * (policy_V - reference_V)).sum()
    chosen = LossSection.model_validate({"kl": 1.0, "kl_weighted": True})
    tokens = loss_tokens(policy_V, older_V, torch.zeros(7), chosen, reference_N=reference_V)
    mean = (older_V.exp() * token_losses(tokens, chosen).loss_N).sum()
    assert mean.item() == pytest.approx(whole.item(), abs=1e-12)
    (gradient_V,) = torch.autograd.grad(mean, logits_V, retain_graph=True)
    (exact,) = torch.autograd.grad(whole, logits_V)
    assert gradient_V.tolist() == pytest.approx(exact.tolist(), abs=1e-12)


def test_k1_is_refused_in_a_loss_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"mean gradient 0: use k2 or k3, or trainer\.kl_penalty"):
        LossSection.model_validate({"kl": 0.1, "kl_estimator": "k1"})


def test_the_decoupled_objective_has_its_ratio_to_the_weights_before_the_step() -> None:
    """The weight is from the engine to them, 2 / 1, the ratio from them, 3 / 2."""
    probabilities = {"logprobs": 0.03, "proximal": 0.02, "engine": 0.01}
    logprobs_N, proximal_N, engine_N = (
        torch.tensor([value], dtype=torch.float64).log() for value in probabilities.values()
    )
    logprobs_N.requires_grad_()
    chosen = LossSection(surrogate="ppo_clip", correction="tis", clip_high=1.0, cap=5.0)
    tokens = loss_tokens(logprobs_N, engine_N, torch.ones(1), chosen, proximal_N=proximal_N)
    losses_N = token_losses(tokens, chosen).loss_N
    torch.autograd.backward(losses_N.sum())
    assert losses_N.item() == pytest.approx(-2 * 1.5)
    assert logprobs_N.grad is not None
    assert logprobs_N.grad.item() == pytest.approx(-2 * 1.5)
