"""A step of a real model has the loss and the gradient of a second, plain implementation."""

import pytest

from scripts.real_model import MODELS, directory_of
from seamlessflow.infra.broker.jars import default_cache
from tests.builders.trainer.compared_steps import assert_equal_to_plain

pytestmark = pytest.mark.real


def test_a_step_of_smollm2_is_that_of_the_plain_implementation() -> None:
    directory = directory_of(MODELS["smollm2"], default_cache())
    assert_equal_to_plain(directory, "auto", tolerance=1e-4)
