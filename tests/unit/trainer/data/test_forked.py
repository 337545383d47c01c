"""Training of forked sessions: what was copied is context, and only what is new is trained.

Holds invariant I6.
"""

from dataclasses import replace

from seamlessflow.schemas.forks import history, of_session
from seamlessflow.trainer.data.chains import chains
from tests.builders.records.content import ids, message
from tests.builders.trajectories.conversation import forked, recorded_prefix
from tests.builders.trajectories.session_builder import finished


def test_only_new_tokens_are_trained_behind_the_whole_copied_prefix() -> None:
    prefix, made = recorded_prefix(), forked()
    made.ask("new", *history(of_session(prefix, "fork")))
    made.answer("new", ids(50, 51, 0), message("assistant", "better"))
    trajectory = finished(made)

    (chain,) = chains(trajectory, "p").chains

    assert len(chain.tokens.ids_T) == prefix.length + 3
    assert chain.tokens.ids_T[chain.tokens.trained_T].tolist() == [50, 51, 0]
    assert chain.turns == ("new",)


def test_a_mask_that_claims_copied_tokens_trains_none_of_them() -> None:
    made = forked()
    trajectory = finished(made)
    wrong = replace(trajectory, loss_mask=b"\1" * len(trajectory.loss_mask))

    assert chains(wrong, "p").chains == ()
