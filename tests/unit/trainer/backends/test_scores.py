"""Log-probs and entropies from logits: in parts they are the same, and keep less in float32."""

from functools import partial

import pytest
import torch
from torch import Tensor

from seamlessflow.trainer.backends.scores import linear_scores, scores

N, V = 7, 11


def inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    logits_NV = (3 * torch.randn(N, V, generator=random)).to(dtype).requires_grad_()
    targets_N = torch.randint(V, (N,), generator=random)
    return logits_NV, targets_N, torch.rand(N, generator=random) + 0.5


@pytest.mark.parametrize("most", [1, 3 * V, 6 * V])
@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize("entropy_gradient", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_scores_in_parts_are_those_of_all_at_once(
    dtype: torch.dtype, entropy_gradient: bool, tempered: bool, most: int
) -> None:
    results = []
    for limit in (N * V, most):
        logits_NV, targets_N, given_N = inputs(dtype)
        temperatures_N = given_N if tempered else None
        result = scores(logits_NV, targets_N, temperatures_N, entropy_gradient, limit)
        assert result[1].requires_grad == entropy_gradient
        weighted = (result[0] * torch.arange(N)).sum() + result[1].square().sum()
        torch.autograd.backward(weighted)
        assert logits_NV.grad is not None
        results.append((*(tensor.detach() for tensor in result), logits_NV.grad))
    for whole, parts in zip(*results, strict=True):
        torch.testing.assert_close(parts, whole, rtol=0, atol=0)


def test_scores_are_those_of_the_definition() -> None:
    logits_NV, targets_N, temperatures_N = inputs(torch.float32)
    logprobs_N, entropies_N = scores(logits_NV, targets_N, temperatures_N, most=2 * V)
    tempered_NV = torch.log_softmax(logits_NV / temperatures_N[:, None], -1)
    torch.testing.assert_close(logprobs_N, tempered_NV[torch.arange(N), targets_N])
    torch.testing.assert_close(entropies_N, -(tempered_NV.exp() * tempered_NV).sum(-1))


@pytest.mark.parametrize("most", [V, 3 * V, N * V])
@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize("likeliest", [1, 5, V, V + 1])
def test_the_likeliest_tokens_have_the_probability_of_the_definition(
    likeliest: int, tempered: bool, most: int
) -> None:
    """From logits and from states, where the others stay as they are without them."""
    logits_NV, targets_N, given_N = inputs(torch.float32)
    temperatures_N = given_N if tempered else None
    divided_NV = logits_NV / given_N[:, None] if tempered else logits_NV
    wanted_N = divided_NV.softmax(-1).sort(descending=True).values[:, :likeliest].sum(-1)
    layer = torch.eye(V), None
    calls = (
        partial(scores, logits_NV, targets_N, temperatures_N, most=most),
        partial(linear_scores, logits_NV, *layer, targets_N, temperatures_N, most=most),
    )
    for call in calls:
        *others, shares_N = call(likeliest=likeliest)
        torch.testing.assert_close(shares_N, wanted_N.detach())
        assert not shares_N.requires_grad
        for score_N, other_N in zip(others, call(), strict=True):
            assert torch.equal(score_N, other_N)


def test_the_gradient_does_not_depend_on_the_likeliest_tokens() -> None:
    gradients = []
    for likeliest in (0, 5):
        hidden_NH, targets_N, _ = inputs(torch.float32)
        logprobs_N, entropies_N, *_ = linear_scores(
            hidden_NH, torch.eye(V), None, targets_N, None, True, 2 * V, None, likeliest
        )
        torch.autograd.backward((logprobs_N + entropies_N).sum())
        gradients.append(hidden_NH.grad)
    assert gradients[0] is not None and gradients[1] is not None
    assert torch.equal(gradients[0], gradients[1])


def test_in_parts_no_float32_copy_of_all_logits_is_kept_for_the_backward_pass() -> None:
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel() if tensor.dtype == torch.float32 else 0)
        return tensor

    for most in (N * V, 2 * V):
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            scores(*inputs(torch.bfloat16)[:2], most=most)
        assert (max(kept, default=0) >= N * V) == (most == N * V)


H = 5
Result = tuple[Tensor, ...]


def from_hidden(
    dtype: torch.dtype, biased: bool, tempered: bool, entropy_gradient: bool, most: int | None
) -> Result:
    """Return log-probs and entropies, and the gradients of states, weight and bias.

    `most`: logits at a time; None: all, by a layer of torch.
    """
    random = torch.Generator().manual_seed(5)
    shapes = [(N, H), (V, H), (V,)]
    hidden_NH, weight_VH, bias_V = (
        torch.randn(shape, generator=random).to(dtype).requires_grad_() for shape in shapes
    )
    bias = bias_V if biased else None
    _, targets_N, given_N = inputs(dtype)
    temperatures_N = given_N if tempered else None
    if most is None:
        logits_NV = torch.nn.functional.linear(hidden_NH, weight_VH, bias)
        result = scores(logits_NV, targets_N, temperatures_N, entropy_gradient)
    else:
        layer = hidden_NH, weight_VH, bias
        result = linear_scores(*layer, targets_N, temperatures_N, entropy_gradient, most)
    assert result[1].requires_grad == entropy_gradient
    torch.autograd.backward((result[0] * torch.arange(1.0, N + 1)).sum() + result[1].square().sum())
    inner = [hidden_NH, weight_VH, *([bias_V] if biased else [])]
    gradients = [tensor.grad for tensor in inner if tensor.grad is not None]
    assert len(gradients) == len(inner)
    return (*(tensor.detach() for tensor in result), *gradients)


@pytest.mark.parametrize("most", [1, 3 * V, N * V])
@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_scores_by_parts_of_the_output_layer_are_those_of_all_its_logits(
    biased: bool, tempered: bool, entropy_gradient: bool, most: int
) -> None:
    how = torch.float32, biased, tempered, entropy_gradient
    for part, whole in zip(from_hidden(*how, most), from_hidden(*how, None), strict=True):
        assert part.dtype == whole.dtype
        torch.testing.assert_close(part, whole, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parts_in_half_precision_are_no_farther_from_float32_than_all_logits_at_once(
    dtype: torch.dtype,
) -> None:
    exact = from_hidden(torch.float32, True, True, True, None)
    parts, whole = (from_hidden(dtype, True, True, True, most) for most in (2 * V, None))
    for part, other, wanted in zip(parts, whole, exact, strict=True):
        far, near = (float((tensor.float() - wanted).norm()) for tensor in (part, other))
        assert far <= 1.5 * near + 1e-6


def test_autocast_computes_parts_in_its_type_and_leaves_the_gradient_in_that_of_the_weight() -> (
    None
):
    hidden_NH, weight_VH = torch.randn(N, H), torch.randn(V, H).requires_grad_()
    targets_N = inputs(torch.float32)[1]
    results = []
    for typed in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=typed):
            results.append(linear_scores(hidden_NH, weight_VH, None, targets_N, most=2 * V)[0])
    exact, rounded = results
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(exact, rounded, rtol=0.05, atol=0.05)
    torch.autograd.backward(rounded.sum())
    assert weight_VH.grad is not None and weight_VH.grad.dtype == torch.float32


def test_a_layer_that_is_not_trained_gets_no_gradient() -> None:
    hidden_NH, weight_VH = torch.randn(N, H, requires_grad=True), torch.randn(V, H)
    targets_N = inputs(torch.float32)[1]
    torch.autograd.backward(linear_scores(hidden_NH, weight_VH, None, targets_N, most=V)[0].sum())
    assert weight_VH.grad is None
    assert hidden_NH.grad is not None and bool(hidden_NH.grad.any())


def test_of_an_output_layer_no_logits_are_kept_for_the_backward_pass() -> None:
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    hidden_NH, weight_VH = torch.randn(50, H), torch.randn(V, H).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        linear_scores(hidden_NH, weight_VH, None, torch.zeros(50, dtype=torch.int64), most=2 * V)
    assert max(kept) == 50 * H
