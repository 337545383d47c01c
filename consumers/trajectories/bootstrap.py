"""Construction of a trajectory manager from its settings."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from uuid import uuid4

from seamlessflow.consumers.trajectories.acting.spilling import SpillFile
from seamlessflow.consumers.trajectories.bus.connections import connect
from seamlessflow.consumers.trajectories.decisions.context import ControlTerms, JudgeTerms, RunTerms
from seamlessflow.consumers.trajectories.manager import Manager
from seamlessflow.consumers.trajectories.matching.renderers import Renderers
from seamlessflow.consumers.trajectories.sessions.fold import FOLD_VERSION, FOLDED_SINCE
from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.infra.errors import SettingsRejected, WrittenReleaseLacks
from seamlessflow.infra.kafka.messages import encoder
from seamlessflow.infra.kafka.start.cluster import find_cluster
from seamlessflow.infra.rendering.tokenizer import LONG_TEXT
from seamlessflow.infra.telemetry.instruments import instruments
from seamlessflow.infra.user_functions import source_sha256
from seamlessflow.schemas.records import TurnControl
from seamlessflow.schemas.releases import order
from seamlessflow.schemas.topics import (
    CONTROL,
    ENDED_SESSIONS,
    FLEET,
    PROMPTS,
    REPLIES,
    REQUESTS,
    SESSIONS,
    TRAJECTORIES,
)
from seamlessflow.schemas.written import EncodeRecord

_VARIABLE = "SEAMLESSFLOW_KAFKA__WRITE_RELEASE"
_TOPICS = (REQUESTS, SESSIONS, ENDED_SESSIONS, PROMPTS, REPLIES, TRAJECTORIES, CONTROL, FLEET)


def serve(settings: ManagerSettings, stopping: Callable[[], bool]) -> None:
    """Run a manager until `stopping()` is true.

    Raises what `check_rules`, `control_terms` and `Manager.run` raise.
    """
    check_rules(settings.kafka.write_release)
    control = control_terms(settings, encoder(settings.kafka))
    # If a member name is set, it outlives a restart; the rest distinguishes the member's lives.
    life = uuid4().hex[:8]
    static = settings.manager.slot or None
    member = static or life
    name = f"manager-{static}-{life}" if static else f"manager-{life}"
    section = settings.manager.model_copy(update={"slot": member})
    settings = settings.model_copy(update={"manager": section})
    find_cluster(settings.kafka, _TOPICS, stopping)
    spill_dir = Path(settings.manager.spill_dir or settings.data_dir / "spilled")
    with (
        instruments(settings, "manager", name, {REQUESTS.name: section.group}) as made,
        closing(SpillFile(spill_dir)) as spilled,
    ):
        connections = connect(settings, name, static, made, stopping)
        renderers = Renderers(LONG_TEXT)
        terms = RunTerms(control, judge_terms(settings))
        manager = Manager(section, connections, renderers, made, spilled, terms)
        manager.run(stopping)


def control_terms(settings: ManagerSettings, encode: EncodeRecord) -> ControlTerms:
    """Return the rule that ends turns early, as `TurnStarted` records it, with its terms.

    Raises `FunctionUnusable`, or `SettingsRejected` if the written release lacks such rules.
    """
    section = settings.rollout.control
    if section.name is None:
        return ControlTerms(record_top=section.record_top)
    rule = TurnControl(
        name=section.name,
        settings=section.settings_json,
        sha256=source_sha256(section.name),
        reward=section.reward,
    )
    try:
        encode(rule)
    except WrittenReleaseLacks as error:
        raise SettingsRejected("SEAMLESSFLOW_ROLLOUT__CONTROL__NAME", str(error)) from error
    return ControlTerms(rule, section.exempt, section.record_top)


def judge_terms(settings: ManagerSettings) -> JudgeTerms:
    """Return the judges that a session waits for, ordered by name."""
    section = settings.rewards
    return JudgeTerms(tuple(sorted(section.judges)), int(1000 * section.longest_wait_s))


def check_rules(write_release: str | None) -> None:
    """Raise `SettingsRejected` for a release whose managers cannot fold what this one writes."""
    if write_release is not None and order(write_release) < order(FOLDED_SINCE):
        reason = (
            f"release {write_release} does not know rules {FOLD_VERSION} of the fold, by which new "
            f"sessions are merged: pin to {FOLDED_SINCE} or newer, or end all managers of "
            f"{write_release} before this one starts without a pin"
        )
        raise SettingsRejected(_VARIABLE, reason)
