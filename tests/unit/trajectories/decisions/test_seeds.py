"""Sampling seeds: a session of an exploration can be sampled again, turn by turn."""

from seamlessflow.consumers.trajectories.decisions.decide import decide
from seamlessflow.schemas import records as r
from tests.builders.records.commands import open_session, request_turn
from tests.builders.records.content import ids
from tests.builders.records.sessions import completed, dispatched, opened, started
from tests.builders.trajectories.decisions import context, fleet_with
from tests.builders.trajectories.session_builder import SessionBuilder, finished

FIRST = r.SeedSession(session_id="first", text="t", value=1.0)
CHEAP = {"worker_tags": "cheap"}


def seed(
    session_id: str,
    purpose: str = "explore",
    seeds: r.SeedSession | None = None,
    turns: int = 0,
    choice: int = 0,
) -> int | None:
    """Return the seed of a session's next turn, which the worker gets also."""
    begun = opened(session_id=session_id, purpose=purpose, seed_session=seeds)
    built = SessionBuilder().apply(begun)
    for number in range(turns):
        built.apply(started(session_id=session_id, turn_id=f"earlier-{number}"))
    command = request_turn("turn", session_id=session_id, choice=choice)
    decision = decide(built.session, command, context(fleet_with("v")))
    (event, _), ((_, generate),) = decision.events, decision.prompts
    assert isinstance(event, r.TurnStarted)
    assert isinstance(generate, r.GenerateTurn)
    assert event.seed == generate.seed
    return event.seed


def test_a_session_takes_the_seeds_of_the_explored_one_for_each_of_its_turns() -> None:
    for turns in range(3):
        again = seed("second", "train", FIRST, turns)
        assert again is not None
        assert again == seed("first", turns=turns)


def test_sessions_turns_and_choices_of_an_exploration_have_different_seeds() -> None:
    seeds = {
        *(seed(name) for name in ("first", "second", "third")),
        *(seed("first", turns=turns) for turns in (1, 2)),
        seed("first", choice=1),
    }
    assert None not in seeds
    assert len(seeds) == 6


def test_any_other_session_has_no_seed() -> None:
    assert seed("first", "train") is None
    assert seed("first", "eval") is None


def test_an_opening_brings_the_explored_session_into_the_log_and_the_trajectory() -> None:
    (event,) = decide(None, open_session(seed_session=FIRST), context(fleet_with("v"))).events
    assert isinstance(event, r.SessionOpened)
    assert event.seed_session == FIRST
    assert finished(SessionBuilder().apply(opened(seed_session=FIRST))).seed_session == FIRST


def test_no_call_leads_a_session_of_an_exploration_to_other_workers() -> None:
    for fields in ({"purpose": "explore"}, {"seed_session": FIRST}):
        session = SessionBuilder().apply(opened(metadata=CHEAP, **fields)).session
        event, *_ = decide(session, request_turn(tags=("decode",)), context()).events
        assert isinstance(event, r.TurnStarted)
        assert event.tags == ("cheap",)


def test_no_token_of_an_exploration_is_trained() -> None:
    explored = SessionBuilder().apply(opened(purpose="explore"))
    made = finished(explored.apply(started(), dispatched(), completed(ids(7, 8))))
    assert sum(made.loss_mask) == 0
    assert made.masked_tokens == {"explore": 2}
