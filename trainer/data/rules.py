"""Batch rules: the settings by which groups become a batch, and a batch's limits. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seamlessflow.infra.user_functions import OwnSettings
from seamlessflow.trainer.credit import ONE_REWARD, Chaining, FilterAction
from seamlessflow.trainer.data.advantages import Advantages, ReturnRules
from seamlessflow.trainer.data.credit.overlong import OverlongRules
from seamlessflow.trainer.data.credit.returns import RewardWeights
from seamlessflow.trainer.data.episodes import Episode
from seamlessflow.trainer.data.pairs import PairRules
from seamlessflow.trainer.data.selection import SelectionRules
from seamlessflow.trainer.data.staleness import OnStale


@dataclass(frozen=True, slots=True, kw_only=True)
class ReuseRules:
    """The settings for reuse, `trainer.reuse`."""

    groups: int = 0
    """Most groups in a batch that earlier steps trained."""
    uses: int = 2
    """Steps that may train a group, the first one included."""
    max_staleness: int = 8
    """Their tokens' largest staleness, in optimizer steps."""
    choice: str = "random"
    seed: int = 0


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The settings by which groups become a batch."""

    estimator: Callable[[Sequence[Episode]], Advantages]
    filters: Mapping[str, FilterAction]
    on_stale: OnStale
    max_staleness: int
    """A trained token's largest staleness, in optimizer steps."""
    recorded: bool = False
    """True if another run recorded the sessions; see `StepClock`."""
    train_foreign: bool = False
    """True if tokens that another system sampled may be trained."""
    advantage: str = ""
    """The estimator's name."""
    overlong: OverlongRules = field(default_factory=OverlongRules)
    reuse: ReuseRules = field(default_factory=ReuseRules)
    rewards: RewardWeights = field(default_factory=lambda: ONE_REWARD)
    """Each counted reward's weight, by name."""
    regularised: bool = False
    """True if the loss has a term for each token, whatever its advantage."""
    functions: OwnSettings = field(default_factory=dict)
    """Settings for a user's filters."""
    selection: SelectionRules = field(default_factory=SelectionRules)
    pairs: PairRules = field(default_factory=PairRules)
    returns: ReturnRules = field(default_factory=ReturnRules)
    pools: Mapping[str, int | None] = field(default_factory=dict)
    """Each pool's largest staleness for its tokens, in optimizer steps; None: any."""
    chaining: Chaining = "merged"
    """The way in which a session is divided into chains."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The settings that limit batches and waiting groups."""

    groups: int
    """Groups in a batch."""
    lag: int
    """A group's largest staleness, in optimizer steps."""
    refill: float
    """Dropped groups that the scheduler replaces in a step, measured in batches."""
    window: int
    """Reading sessions stops at this many ready groups."""
    attempts: int | None = None
    """Attempts that the scheduler makes at a sample; None: unknown."""
    extra: int = 0
    """Groups that may be under way beyond `lag + 1` batches."""
    redundancy: int = 0
    """Samples that a group begins beyond those that it asks for."""
