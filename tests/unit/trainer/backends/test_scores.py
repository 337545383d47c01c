"""Log-probs and entropies from logits: in parts they are the same, and keep less in float32."""

import pytest
import torch
from torch import Tensor

from trainer.backends.forward import scores

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
    found = []
    for limit in (N * V, most):
        logits_NV, targets_N, given_N = inputs(dtype)
        temperatures_N = given_N if tempered else None
        of = scores(logits_NV, targets_N, temperatures_N, entropy_gradient, limit)
        assert of[1].requires_grad == entropy_gradient
        weighted = (of[0] * torch.arange(N)).sum() + of[1].square().sum()
        torch.autograd.backward(weighted)
        assert logits_NV.grad is not None
        found.append((*(one.detach() for one in of), logits_NV.grad))
    for whole, parts in zip(*found, strict=True):
        torch.testing.assert_close(parts, whole, rtol=0, atol=0)


def test_scores_are_those_of_the_definition() -> None:
    logits_NV, targets_N, temperatures_N = inputs(torch.float32)
    logprobs_N, entropies_N = scores(logits_NV, targets_N, temperatures_N, most=2 * V)
    tempered_NV = torch.log_softmax(logits_NV / temperatures_N[:, None], -1)
    torch.testing.assert_close(logprobs_N, tempered_NV[torch.arange(N), targets_N])
    torch.testing.assert_close(entropies_N, -(tempered_NV.exp() * tempered_NV).sum(-1))


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
