from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from seamlessflow.producers.agents.result import BadResult, as_reward, result_of

ONES = [
    1,
    True,
    1.0,
    Decimal("1.0"),
    Fraction(1, 1),
    np.bool_(True),
    np.float16(1),
    np.int64(1),
    np.array(1.0),
    torch.tensor(1.0),
    torch.tensor(True),
    torch.tensor(1, dtype=torch.bfloat16),
    torch.tensor(1.0, requires_grad=True).detach(),
]
NO_REWARDS = [
    "1.0",
    b"1",
    10**400,
    -(10**5000),
    1j,
    float("inf"),
    Decimal("NaN"),
    np.array([1.0]),
    np.str_("1.0"),
    np.complex128(1),
    torch.tensor([1.0]),
    torch.tensor(float("nan")),
    object(),
    float,
]


@pytest.mark.parametrize("value", ONES, ids=lambda value: type(value).__name__)
def test_a_scalar_of_any_library_is_a_reward(value: object) -> None:
    assert as_reward(value) == 1.0
    assert type(as_reward(value)) is float
    assert result_of(value) == {"reward": 1.0}


@pytest.mark.parametrize("value", NO_REWARDS, ids=lambda value: type(value).__name__)
def test_what_is_no_finite_number_is_no_reward(value: object) -> None:
    with pytest.raises(BadResult) as raised:
        as_reward(value)
    assert len(str(raised.value)) < 200
    with pytest.raises(BadResult):
        result_of(value)
