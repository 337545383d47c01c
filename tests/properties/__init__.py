"""Properties of the system in random simulations."""

import pytest

# The asserts of the checks say what they compared, as those of test modules do.
pytest.register_assert_rewrite(
    "tests.properties.oracle", "tests.properties.simulation", "tests.properties.invariants"
)
