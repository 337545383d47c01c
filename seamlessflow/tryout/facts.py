"""Facts about an environment that a tryout has gathered; `report.py` judges them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seamlessflow.producers.agents.environments.leftovers import LeftBehind


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """An environment's package, and the Python that it runs in."""

    name: str
    versions: Mapping[str, str]
    """Versions of its distributions; none for a user's own adapter."""
    python: str
    python_version: str
    other_versions: str = ""
    """Packages with another version than the adapter is made for; empty if there are none."""


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """Tasks that an environment lists."""

    count: int
    seconds: float
    fault: str = ""
    """Reason why a run could not read them; empty if it can."""
    metadata: tuple[str, ...] = ()
    """Names in the metadata of any task."""
    drawn_from: bool = False
    """True if each task says what it is drawn from."""


@dataclass(frozen=True, slots=True)
class CallFacts:
    """A call from an environment to the policy."""

    path: str
    status: int
    repeats: int = 0
    parameters: tuple[str, ...] = ()
    """Members of its body."""
    unread: tuple[str, ...] = ()
    """Members that the gateway does not read."""
    fault: str = ""
    """The gateway's words about a call that it refused."""
    tools: tuple[str, ...] = ()
    """Functions that it offers."""
    called: str = ""
    """Function that the policy called in its answer."""
    unwritten: str = ""
    """Reason why the policy's template cannot write the answer that was wanted."""
    by_schema: bool = False
    """True if the answer must obey a JSON schema."""


@dataclass(frozen=True, slots=True)
class HistoryBreak:
    """A turn whose prompt does not go on from an earlier one."""

    turn: int
    """Its number, from 1."""
    detail: str
    """The manager's own word for it."""
    message: int | None = None
    """Number of the first message that differs from each earlier call, from 1; None: not known."""
    role: str = ""
    """Role of that message."""


@dataclass(frozen=True, slots=True)
class EpisodeFacts:
    """An episode, and the session that it was recorded in."""

    task_id: str
    seconds: float
    status: str
    """The session's status."""
    cause: str
    reason: str
    rewards: Mapping[str, float]
    returned: tuple[str, ...]
    """Further members of what the environment returned, such as metrics."""
    turns: int
    chains: int
    calls: Sequence[CallFacts]
    breaks: Sequence[HistoryBreak]
    read_calls: int
    """Tool calls that were read from its answers' tokens."""
    left: LeftBehind
    """Programs and files that the episode left behind in its process."""


@dataclass(frozen=True, slots=True)
class Tryout:
    """All that was seen in a tryout."""

    package: PackageFacts
    tasks: TaskFacts
    warm_up_s: float
    episodes: Sequence[EpisodeFacts]
    left: tuple[str, ...]
    """Programs that outlived its process."""
    written: tuple[str, ...]
    """New names in the working directory."""
