"""The league: which past version a group plays against, by the games that were won before."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from seamlessflow.infra.user_functions import ResultMalformed
from seamlessflow.scheduler.sampling.ask import (
    OfferedOpponents,
    Opponent,
    TaskChoice,
    checked_terms,
)
from seamlessflow.scheduler.sampling.draws import TaskSampling, sampling_of
from seamlessflow.scheduler.sampling.league import draw, league, shares, without_monotonic_end
from seamlessflow.scheduler.sampling.settings import SamplerSection, TermsSection
from seamlessflow.scheduler.sampling.trials import small_ask
from seamlessflow.scheduler.state.arms import GAME_MEMORY, Arms
from seamlessflow.scheduler.state.ledger import OPPONENT_GROUP, opponent_arm, opponent_of
from seamlessflow.scheduler.state.state import State, apply
from seamlessflow.schemas import records as r
from tests.builders.records import control
from tests.builders.scheduler.sampling import source_of
from tests.seed import seed

DRAWS = 10_000
NEWEST = 99
NO_FORGOTTEN = (0.95, 0.9, 0.8, 0.6, 0.5)
FORGOTTEN = (0.9, 0.4, 0.8, 0.6)


def table(rates: Sequence[float]) -> list[Opponent]:
    """Return past versions 0, 10, 20 and so on with these own win rates."""
    return [Opponent(10 * place, rate) for place, rate in enumerate(rates)]


def frequencies(rates: Sequence[float], weight: str) -> dict[int, float]:
    source = random.Random(seed)
    drawn = Counter(draw(table(rates), NEWEST, source, weight).version for _ in range(DRAWS))
    return {version: drawn[version] / DRAWS for version in (*range(0, 10 * len(rates), 10), NEWEST)}


@pytest.mark.parametrize("rates", [NO_FORGOTTEN, FORGOTTEN])
@pytest.mark.parametrize(
    ("weight", "of_rate"),
    [
        ("squared", lambda x: (1 - x) ** 2),
        ("variance", lambda x: x * (1 - x)),
        ("linear", lambda x: 1 - x),
        ("capped", lambda x: min(0.5, 1 - x)),
    ],
)
def test_a_payoff_table_gives_each_opponent_its_share_of_the_draws(
    weight: str, of_rate: Any, rates: Sequence[float]
) -> None:
    expected = dict.fromkeys(range(0, 10 * len(rates), 10), 0.0)
    for place, rate in enumerate(rates):
        expected[10 * place] += 0.5 * of_rate(rate) / sum(map(of_rate, rates))
    # Versions 0, 10 and 20 are before the last rise, and one of them is beaten too seldom.
    if rates is FORGOTTEN:
        squares = [(1 - rate) ** 2 for rate in rates[:3]]
        for place, square in enumerate(squares):
            expected[10 * place] += 0.15 * square / sum(squares)
    expected[NEWEST] = 1 - sum(expected.values())

    drawn = frequencies(rates, weight)
    for version, share in expected.items():
        assert drawn[version] == pytest.approx(share, abs=0.03), (version, seed)
    assert expected[NEWEST] == pytest.approx(0.35 if rates is FORGOTTEN else 0.5)


def test_versions_that_are_all_beaten_are_drawn_alike() -> None:
    assert shares([1.0, 1.0, 1.0, 1.0], "linear") == [0.25] * 4
    drawn = frequencies([1.0] * 4, "squared")
    assert all(drawn[10 * place] == pytest.approx(0.125, abs=0.03) for place in range(4)), seed


def test_what_follows_the_last_rise_was_not_forgotten() -> None:
    kept = without_monotonic_end(table([0.9, 0.6, 0.65, 0.6, 0.2]))
    assert [each.version for each in kept] == [0, 10, 20]
    assert not without_monotonic_end(table(NO_FORGOTTEN))
    assert not without_monotonic_end(table([0.1]))
    assert not without_monotonic_end([])


def test_without_any_past_version_it_plays_against_itself() -> None:
    source = random.Random(seed)
    assert {draw([], NEWEST, source).version for _ in range(100)} == {NEWEST}


def against(opponents: OfferedOpponents | None, **settings: Any) -> TaskChoice:
    ask = small_ask()
    candidate = ask.candidate(0)
    candidate = type(candidate)(**{**vars(candidate), "opponents": opponents})
    return league(candidate, TaskChoice(place=0), random.Random(seed), **settings)


def test_a_drawn_opponent_stays_for_the_groups_of_a_step() -> None:
    def behind(groups: int) -> OfferedOpponents:
        return OfferedOpponents(table([0.5]), NEWEST, present=50, groups=groups, groups_per_step=3)

    assert [against(behind(groups)).opponent == 50 for groups in (1, 2, 3)] == [True, True, False]
    assert against(behind(2)).figures[OPPONENT_GROUP] == 2
    assert against(behind(3)).figures[OPPONENT_GROUP] == 0
    assert against(behind(3), groups=4).opponent == 50
    assert against(None) == TaskChoice(place=0)


def test_terms_of_a_user_name_a_version_that_can_be_shown() -> None:
    candidate = small_ask().candidate(0)
    with pytest.raises(ResultMalformed, match="opponent 3"):
        checked_terms(candidate, TaskChoice(place=0, opponent=3))


def league_sampling(groups_per_step: int = 2) -> TaskSampling:
    source = source_of(50)
    terms = TermsSection.model_validate({"name": "league"})
    made = sampling_of(SamplerSection(), terms, {}, source, (0, 4, 0))
    return TaskSampling(
        terms=made.terms, indexes=made.indexes, samples=4, groups_per_step=groups_per_step
    )


def test_games_count_for_their_opponent_and_are_forgotten_game_by_game() -> None:
    arms, state = Arms(), State()
    results = [(1.0, 0.0, 0.0, 1.0), (1.0, 1.0, 1.0, 0.0)]
    for number, returns in enumerate(results):
        name = f"g{number}"
        admitted = control.admitted(name, f"task-{number}", arms=(opponent_arm(7),))
        for record in (admitted, control.ready(name, returns=returns, turns=(1,) * 4)):
            arms.apply(state, record)
            state = apply(state, record)
        state = apply(state, control.published(number + 1, step=number + 1))
    kept = GAME_MEMORY**4
    won, lost = 2 * kept + 3, 2 * kept + 1
    assert arms.win_rate(opponent_arm(7)) == pytest.approx(won / (won + lost))
    assert arms.win_rate(opponent_arm(8)) == 0.5


def test_the_opponent_is_an_arm_of_the_group() -> None:
    assert opponent_of(("task:a", opponent_arm(12))) == 12
    assert opponent_of(("task:a", "past@x")) == opponent_of(()) == -1
    record = control.admitted("g", arms=(opponent_arm(12),), sampler_figures={OPPONENT_GROUP: 1.0})
    ledger = apply(State(), record).first.ledger
    assert (ledger.groups["g"].opponent, ledger.opponent, ledger.opponent_groups) == (12, 12, 2)
    assert isinstance(record, r.GroupAdmitted)
