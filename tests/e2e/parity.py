"""A comparison of recorded log-probs with a plain forward pass of the version that sampled."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

from seamlessflow.schemas import records as r

PARITY = 1e-4


def plain_logprobs(weights: Path, tokens: bytes) -> npt.NDArray[np.float32]:
    """Return the log-prob of each token after the first, by one plain forward pass."""
    model = AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
    ids_T = torch.from_numpy(np.frombuffer(tokens, np.int32).astype(np.int64))
    with torch.inference_mode():
        logits_TV = model(ids_T[None]).logits[0]
    chosen = torch.log_softmax(logits_TV[:-1], -1).gather(1, ids_T[1:, None])
    logprobs: npt.NDArray[np.float32] = chosen[:, 0].numpy()
    return logprobs


def assert_parity(weights: Path | Mapping[int, Path], trajectory: r.Trajectory) -> None:
    """Check each trained token of a single chain under the weights of its version."""
    if isinstance(weights, Path):
        weights = dict.fromkeys(versions(trajectory), weights)
    last = trajectory.nodes[-1]
    end = last.start + last.length
    ours = np.frombuffer(trajectory.logprobs, np.float32)[1:end]
    mask = np.frombuffer(trajectory.loss_mask, np.uint8)[1:end].astype(bool)
    sampled_by = _versions_of_tokens(trajectory, end)[1:]
    assert mask.any()
    for version, directory in weights.items():
        chosen = mask & (sampled_by == version)
        plain = plain_logprobs(directory, trajectory.tokens[: 4 * end])
        np.testing.assert_allclose(ours[chosen], plain[chosen], atol=PARITY)


def versions(trajectory: r.Trajectory) -> list[int]:
    """Return the versions that sampled the trained tokens, in order."""
    of_tokens = _versions_of_tokens(trajectory, len(trajectory.loss_mask))
    trained = np.frombuffer(trajectory.loss_mask, np.uint8).astype(bool)
    return sorted({int(version) for version in of_tokens[trained]})


def _versions_of_tokens(trajectory: r.Trajectory, count: int) -> npt.NDArray[np.int64]:
    of_tokens = np.full(count, -1, np.int64)
    for span in trajectory.spans:
        of_tokens[span.start :] = span.version_min
    return of_tokens
