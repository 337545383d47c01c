"""A step of the trainer has the loss and the gradient of a second, plain implementation."""

from pathlib import Path
from typing import get_args

import pytest

from seamlessflow.trainer.data.packing import Layout
from tests.builders.trainer.compared_steps import assert_equal_to_plain
from tests.builders.trainer.models import write_tiny


@pytest.mark.parametrize("layout", get_args(Layout))
def test_a_step_of_a_tiny_model_is_that_of_the_plain_implementation(
    tmp_path: Path, layout: Layout
) -> None:
    assert_equal_to_plain(write_tiny(tmp_path), layout, tolerance=1e-5)
