"""Start of a manager: it is not pinned to a release whose managers fold by older rules."""

import pytest

from seamlessflow.consumers.trajectories.bootstrap import check_rules, control_terms
from seamlessflow.consumers.trajectories.decisions.context import ControlTerms
from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION, FOLDED_SINCE
from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.infra.errors import SettingsRejected
from seamlessflow.infra.kafka.messages import refusing
from seamlessflow.infra.worker.control_rule import ControlSection, SharedRolloutSection
from seamlessflow.schemas.codec import encode
from seamlessflow.schemas.records import SessionOpened
from seamlessflow.schemas.releases import order, releases, this_release
from seamlessflow.schemas.written import encoder_of
from tests.builders.records import sessions
from tests.builders.schemas.made_up import FIRST, SECOND, encoder


def test_a_manager_writes_for_releases_that_fold_by_its_rules() -> None:
    check_rules(None)
    check_rules(this_release().version)
    with pytest.raises(SettingsRejected, match="rules 2 of the fold"):
        check_rules("0.0.2")


def test_a_manager_records_the_rule_of_its_settings_with_each_turn() -> None:
    assert control_terms(ManagerSettings(), encode) == ControlTerms()
    mine = ControlSection(name="examples.methods.control:Unlikely", settings={"below": -1.0})
    terms = control_terms(ManagerSettings(rollout=SharedRolloutSection(control=mine)), encode)
    rule = terms.rule
    assert rule is not None
    assert (rule.settings, len(rule.sha256), rule.reward) == (b'{"below":-1.0}', 64, 0)
    assert terms.exempt == 0.05


def test_a_rule_is_refused_under_the_pin_of_a_release_that_has_no_place_for_it() -> None:
    section = SharedRolloutSection(control=ControlSection(name="repetition"))
    settings = ManagerSettings(rollout=section)
    with pytest.raises(SettingsRejected, match=r"ROLLOUT__CONTROL__NAME.*does not have"):
        control_terms(settings, refusing(FIRST, encoder(FIRST)))
    assert control_terms(settings, refusing(SECOND, encoder(SECOND))).rule is not None
    assert control_terms(ManagerSettings(), refusing(FIRST, encoder(FIRST))).rule is None


def test_each_release_that_a_manager_writes_for_can_hold_its_rules() -> None:
    allowed = [
        release.version for release in releases() if order(release.version) >= order(FOLDED_SINCE)
    ]

    assert allowed
    for version in allowed:
        opened = sessions.opened(fold_version=FOLD_VERSION)
        assert isinstance(opened, SessionOpened)
        assert encoder_of(version)(opened)
