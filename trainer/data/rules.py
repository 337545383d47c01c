"""Rules of batches: the settings by which groups become a batch, and its limits. Pure."""

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
    """The settings of reuse, `trainer.reuse`."""

    groups: int = 0
    """Most groups of earlier steps in a batch."""
    uses: int = 2
    """Steps that may train a group, the first one included."""
    max_staleness: int = 8
    """Largest staleness of their tokens, in optimizer steps."""
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
    """True if the sessions are those of another run; see `StepClock`."""
    train_foreign: bool = False
    """True if tokens that another system sampled may be trained."""
    advantage: str = ""
    """The estimator's name."""
    overlong: OverlongRules = field(default_factory=OverlongRules)
    reuse: ReuseRules = field(default_factory=ReuseRules)
    rewards: RewardWeights = field(default_factory=lambda: ONE_REWARD)
    """Weights of the named rewards that count."""
    regularised: bool = False
    """True if the loss has a term for each token, whatever its advantage."""
    functions: OwnSettings = field(default_factory=dict)
    """Settings for a user's filters."""
    selection: SelectionRules = field(default_factory=SelectionRules)
    pairs: PairRules = field(default_factory=PairRules)
    returns: ReturnRules = field(default_factory=ReturnRules)
    pools: Mapping[str, int | None] = field(default_factory=dict)
    """Largest staleness of tokens from each pool, in optimizer steps; None: any."""
    chaining: Chaining = "merged"
    """Chains that a session is read as."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The settings that limit batches and waiting groups."""

    groups: int
    """A batch's groups."""
    lag: int
    """A group's largest staleness, in optimizer steps."""
    refill: float
    """Dropped groups that the scheduler replaces in a step, in batches."""
    window: int
    """Number of ready groups at which no more sessions are read."""
    attempts: int | None = None
    """Attempts that the scheduler makes at a sample; None: unknown."""
    extra: int = 0
    """Groups that may be under way beyond those of `lag + 1` batches."""
    redundancy: int = 0
    """Samples that a group begins beyond those that it asks for."""
