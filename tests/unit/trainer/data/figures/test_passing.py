"""Sessions that pass, and the chance that one of k does."""

from seamlessflow.trainer.data.figures.passing import pass_at_k, passed


def test_pass_at_k_is_the_share_of_choices_of_k_sessions_of_which_one_passes() -> None:
    # Of the six pairs of four sessions of which one passes, three have it.
    assert pass_at_k([(4, 1)]) == {1: 0.25, 2: 0.5, 4: 1.0}
    assert pass_at_k([(2, 2), (3, 0)]) == {1: 0.5, 2: 0.5}
    assert pass_at_k([]) == pass_at_k([(0, 0)]) == {}


def test_a_session_passes_with_a_return_of_one() -> None:
    assert passed([0.0, 0.99, 1.0, 2.5, -1.0]) == 2
