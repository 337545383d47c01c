"""Frozen dataclasses, one for each schema, with the same name and fields.

Written by `python -m seamlessflow.schemas.generate` from the `.avsc` files, which explain each
field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


class Record:
    """Base of all classes that have a schema of their own."""


@dataclass(frozen=True, kw_only=True)
class ArmSnapshot(Record):
    """Statistics for an arm (a task or a pool of tasks), so that the next scheduler need not read
    control from its start."""

    epoch: int
    arm: str
    control_offset: int
    passed: float
    failed: float
    at_step: int
    draws: int
    ready: int
    won: int
    lost: int
    equal: int
    last_passed: int
    last_counted: int
    longest: int
    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ReplyAddress(Record):
    """Place where one gateway instance reads its answers."""

    partition: int
    gateway: str


@dataclass(frozen=True, kw_only=True)
class Reward(Record):
    """One judgement about a session or one of its turns."""

    name: str = "reward"
    value: float
    scope: str = "session"
    turn_id: str | None = None
    source: str = "agent"
    revision: int = 0


@dataclass(frozen=True, kw_only=True)
class AssignReward(Record):
    """Command: record a reward."""

    command_id: str
    session_id: str
    issued_at_ms: int
    expires_at_ms: int
    reply: ReplyAddress | None = None
    reward: Reward
    final: bool = True
    idempotency_key: str | None = None
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class AssignmentTimedOut(Record):
    """A worker did not acquire its role in time."""

    epoch: int
    at_ms: int
    assignment: int
    worker: str
    role: str
    waited_ms: int


@dataclass(frozen=True, kw_only=True)
class StepMethod(Record):
    """A method that shaped a batch or its optimizer step, and on which the results depend."""

    kind: str
    name: str
    version: int = 1
    settings_hash: str = ""
    source_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class BatchReady(Record):
    """The trainer has all groups for the next optimizer step."""

    at_ms: int
    step: int
    groups: tuple[str, ...] = ()
    trainable_tokens: int
    policy: str = ""
    methods: tuple[StepMethod, ...] = ()
    control_offset: int = -1


@dataclass(frozen=True, kw_only=True)
class BlobReference(Record):
    """Stand-in for a record that is too large for its topic: the record is a blob in object
    storage."""

    sha256: str
    size: int
    record: str


@dataclass(frozen=True, kw_only=True)
class CancelGeneration(Record):
    """To a worker: stop sampling this turn."""

    session_id: str
    turn_id: str
    dispatch: int
    epoch: int
    worker: str
    incarnation: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CancelTurn(Record):
    """Command: no client waits for this turn any more. It ends a running turn and marks a
    completed one as undelivered."""

    command_id: str
    session_id: str
    issued_at_ms: int
    expires_at_ms: int
    reply: ReplyAddress | None = None
    turn_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class CloseSession(Record):
    """Command: end a session; its trajectory is built when its rewards are in."""

    command_id: str
    session_id: str
    issued_at_ms: int
    expires_at_ms: int
    reply: ReplyAddress | None = None
    status: str = "complete"
    reason: str = ""
    cause: str = "policy"
    await_reward_ms: int = 0
    await_rewards: tuple[str, ...] = ()
    on_limit: str = "zero"
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class CommandAnswered(Record):
    """To a gateway: what became of a command."""

    gateway: str
    session_id: str
    command_id: str
    turn_id: str | None = None
    status: int = 200
    reason: str = ""
    detail: str = ""
    tokens: int | None = None
    open_until_ms: int | None = None
    state: bytes | None = None
    trajectory: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class CommandRefused(Record):
    """Event: a command was not carried out."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str
    reply: ReplyAddress | None = None
    turn_id: str | None = None
    status: int
    reason: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class SessionTerms(Record):
    """Terms for a session that a request names and no agent opened."""

    policy: str
    policies: Mapping[str, str] = field(default_factory=dict)
    purpose: str = "train"
    metadata: Mapping[str, str] = field(default_factory=dict)
    agent: str = ""
    max_age_ms: int = 86400000
    max_idle_ms: int = 3600000


@dataclass(frozen=True, kw_only=True)
class CountTokens(Record):
    """Question: how many tokens does the prompt for these messages have? Leaves no event."""

    command_id: str
    session_id: str
    issued_at_ms: int
    expires_at_ms: int
    reply: ReplyAddress | None = None
    messages: tuple[bytes, ...] = ()
    tools: bytes | None = None
    template_args: bytes | None = None
    module: str = ""
    terms: SessionTerms | None = None


@dataclass(frozen=True, kw_only=True)
class DescribeSession(Record):
    """Question: what state is a session in? Leaves no event."""

    command_id: str
    session_id: str
    issued_at_ms: int
    expires_at_ms: int
    reply: ReplyAddress | None = None
    wants_trajectory: bool = False


@dataclass(frozen=True, kw_only=True)
class EndedSession(Record):
    """A finalized session, written in one transaction with its trajectory: its id is used up, its
    calls may be repeated."""

    session_id: str
    calls: bytes
    named_calls: bytes


@dataclass(frozen=True, kw_only=True)
class EpisodeRole(Record):
    """A role in a group's episodes, in which each role is one session."""

    role: str
    policy: str
    group_id: str
    trained: bool = True


@dataclass(frozen=True, kw_only=True)
class EvaluationCompleted(Record):
    """A version was evaluated: all groups in the round are over."""

    at_ms: int
    version: int
    step: int
    split: str
    groups: int
    sessions: int
    reward_mean: float | None
    reward_error: float | None = None
    pass_at: Mapping[str, float] = field(default_factory=dict)
    pass_at_low: Mapping[str, float] = field(default_factory=dict)
    pass_at_high: Mapping[str, float] = field(default_factory=dict)
    pass_all: Mapping[str, float] = field(default_factory=dict)
    pass_all_low: Mapping[str, float] = field(default_factory=dict)
    pass_all_high: Mapping[str, float] = field(default_factory=dict)
    success: float = 1.0
    turns: float | None = None
    sampled_tokens: float | None = None
    prompt_tokens: float | None = None


@dataclass(frozen=True, kw_only=True)
class ForkOrigin(Record):
    """Place in a recorded session where another session begins."""

    cluster: str = ""
    topic_prefix: str = ""
    partition: int
    session_id: str
    turn_id: str
    offset: int
    behind: str = "prompt"
    parent_return: float | None = None


@dataclass(frozen=True, kw_only=True)
class ForkedPrompt(Record):
    """A recorded turn's prompt, as a fork copies it."""

    turn_id: str
    parent: int = -1
    parent_end: int = 0
    ids: bytes
    origin: str = "prompt"
    messages: tuple[bytes, ...] = ()
    history_key: bytes
    tools: bytes | None = None
    policy: str
    module: str = ""
    own_messages: int = 0
    raw: bool = False
    prefill: int = 0


@dataclass(frozen=True, kw_only=True)
class ForkedTurn(Record):
    """A completed turn in a recorded session, as a fork copies it."""

    prompt: ForkedPrompt
    ids: bytes
    message: bytes
    finish_reason: str
    stop_sequence: str | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class ForkedPrefix(Record):
    """A recorded session's beginning, with which another one begins: exact, and never trained
    again."""

    origin: ForkOrigin
    mode: str = "middle"
    policy: str
    tokenizer_hash: str
    turns: tuple[ForkedTurn, ...] = ()
    prompt: ForkedPrompt | None = None
    length: int
    hash: bytes
    appended: tuple[bytes, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GatewayHeartbeat(Record):
    """One gateway's state."""

    gateway: str
    partition: int
    url: str
    in_flight: int
    at_ms: int
    release: str = ""
    ending: bool = False


@dataclass(frozen=True, kw_only=True)
class Sampling(Record):
    """Sampling parameters. A null field was not asked for: the policy's value or the engine's
    default applies."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Mapping[str, float] = field(default_factory=dict)
    min_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top_logprobs: int = 0
    json_schema: str | None = None
    one_tool_call: bool = False


@dataclass(frozen=True, kw_only=True)
class TurnControl(Record):
    """Rule by which a worker may end a turn early; it sees one sampled token after the other."""

    name: str
    settings: bytes
    sha256: str = ""
    version: int = 1
    exempt: bool = False
    reward: float | None = None


@dataclass(frozen=True, kw_only=True)
class GenerateTurn(Record):
    """To a worker: sample this turn."""

    session_id: str
    turn_id: str
    dispatch: int
    epoch: int
    partition: int
    worker: str
    incarnation: str
    prompt_ids: bytes
    prompt_hash: bytes
    completion_ids: bytes
    sampling: Sampling
    tools: bytes | None = None
    stream: bool
    policy: str
    adapter: str = ""
    pinned_version: int | None = None
    deadline_ms: int
    choice: int = 0
    raw: bool = False
    prefill: int = 0
    computed: int = 0
    min_version: int | None = None
    control: TurnControl | None = None
    control_state: bytes | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class GenerationPaused(Record):
    """A worker holds its running turns."""

    at_ms: int
    worker: str
    incarnation: str
    mode: str
    running: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class GenerationResumed(Record):
    """A worker goes on with its turns after a pause."""

    at_ms: int
    worker: str
    incarnation: str
    version: int
    paused_ms: int


@dataclass(frozen=True, kw_only=True)
class ParentPlace(Record):
    """A turn in an ended session of the same run, from which new sessions go on."""

    session_id: str
    turn: int
    first_offset: int
    parent_return: float


@dataclass(frozen=True, kw_only=True)
class SeedSession(Record):
    """Exploration session whose sampling seeds another session takes."""

    session_id: str
    text: str
    value: float


@dataclass(frozen=True, kw_only=True)
class GroupAdmitted(Record):
    """The scheduler issued a group's tasks; a group for training takes a credit."""

    epoch: int
    at_ms: int
    group_id: str
    task_id: str
    version: int
    deadline_ms: int
    purpose: str = "train"
    split: str = ""
    policy: str = ""
    group_size: int = 0
    min_group_size: int = 0
    tags: tuple[str, ...] = ()
    turn_limit: int = 0
    parent_session: str = ""
    parent_turn: str = ""
    sampler: str = ""
    sampler_version: int = 0
    sampler_figures: Mapping[str, float] = field(default_factory=dict)
    sampler_sha256: str = ""
    arms: tuple[str, ...] = ()
    terms: str = ""
    terms_sha256: str = ""
    fork_at: ParentPlace | None = None
    explored: str = ""
    seeds: tuple[SeedSession, ...] = ()
    role: str = ""
    roles: tuple[EpisodeRole, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupConsumed(Record):
    """A group entered an optimizer step."""

    at_ms: int
    group_id: str
    step: int
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class GroupDropped(Record):
    """A group will never be trained; its credit returns."""

    at_ms: int
    group_id: str
    reason: str
    detail: str = ""
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class GroupExpired(Record):
    """Advice to the trainer: a group's deadline has passed."""

    epoch: int
    at_ms: int
    group_id: str
    detail: str = ""
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class GroupReady(Record):
    """Enough sessions have arrived for a group to be trained."""

    at_ms: int
    group_id: str
    sessions: tuple[str, ...] = ()
    reward_mean: float
    reward_std: float
    version_min: int | None = None
    trainable_tokens: int
    policy: str = ""
    passed: int | None = None
    returns: tuple[float, ...] = ()
    turns: tuple[int, ...] = ()
    first_offsets: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    prompt_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LineageStarted(Record):
    """A trainer began or resumed a run; all that is needed to execute its steps again."""

    at_ms: int
    policy: str
    lineage: str
    parent_lineage: str = ""
    step: int
    settings: bytes
    ranks: int = 1
    threads: int = 0
    torch: str = ""
    device: str = ""
    release: str = ""


@dataclass(frozen=True, kw_only=True)
class ManagerStarted(Record):
    """A trajectory manager started. Earlier managers with the same name end when they read it."""

    member: str
    manager: str
    at_ms: int
    release: str = ""


@dataclass(frozen=True, kw_only=True)
class Media(Record):
    """A part of a prompt that is not text, by reference."""

    sha256: str
    uri: str
    mime: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class OpenSession(Record):
    """Command: begin a session."""

    command_id: str
    session_id: str
    issued_at_ms: int
    expires_at_ms: int
    reply: ReplyAddress | None = None
    policy: str
    policies: Mapping[str, str] = field(default_factory=dict)
    purpose: str = "train"
    split: str = "train"
    task_id: str = ""
    group_id: str = ""
    sample: int = 0
    attempt: int = 0
    group_size: int = 1
    min_group_size: int = 1
    turn_limit: int = 0
    pinned_version: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    module: str = ""
    agent: str = ""
    max_age_ms: int = 86400000
    max_idle_ms: int = 3600000
    idempotency_key: str | None = None
    fork: ForkedPrefix | None = None
    overrides: Sampling | None = None
    seed_session: SeedSession | None = None


@dataclass(frozen=True, kw_only=True)
class PartitionClaimed(Record):
    """Event: from here on, a manager owns this partition of requests and sessions."""

    partition: int
    epoch: int
    manager: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class PlanWarning(Record):
    """The plan leaves devices idle."""

    epoch: int
    at_ms: int
    code: str
    detail: str
    predicted_idle_share: float
    policy: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PolicyWeights(Record):
    """A policy's current weights, and how its prompts are rendered."""

    policy: str
    version: int
    step: int
    directory: str
    manifest_sha256: str
    tokenizer_directory: str
    tokenizer_hash: str
    renderer: bytes
    max_context: int
    overrides: Sampling
    train_inexact: bool = False
    train_undelivered: bool = False
    siblings: str = "continued"
    train_truncated: bool = False
    strictness: str = "arguments"
    at_ms: int
    frozen: bool = False


@dataclass(frozen=True, kw_only=True)
class ProgressStalled(Record):
    """A part of the run that should make progress stands still."""

    at_ms: int
    what: str
    detail: str
    since_ms: int
    process: str = ""
    topic: str = ""
    partition: int | None = None
    offset: int | None = None
    deadline_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class ReplacedSession(Record):
    """A session that left its group's loss, and the stored session that took its place."""

    session_id: str
    by: str
    pool: str
    uses: int = 0


@dataclass(frozen=True, kw_only=True)
class TokenTensor(Record):
    """An array with one row for each token, inline or by reference."""

    name: str
    node_id: int | None = None
    from_token: int
    to_token: int
    dtype: str
    shape: tuple[int, ...] = ()
    data: bytes | None = None
    uri: str | None = None
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReplyDelta(Record):
    """To a gateway: a part of a streamed answer."""

    gateway: str
    session_id: str
    turn_id: str
    token_offset: int
    token_count: int
    delta: bytes | None = None
    token_ids: bytes | None = None
    logprobs: bytes | None = None
    prompt_tokens: int = 0
    tensors: tuple[TokenTensor, ...] = ()
    prompt_ids: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class ReplyFinished(Record):
    """To a gateway: the whole answer, or why there is none."""

    gateway: str
    session_id: str
    turn_id: str
    token_offset: int = 0
    delta: bytes | None = None
    message: bytes | None = None
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    token_ids: bytes | None = None
    logprobs: bytes | None = None
    version: int | None = None
    status: int = 200
    reason: str = ""
    detail: str = ""
    tensors: tuple[TokenTensor, ...] = ()
    stop_sequence: str | None = None
    reasoning_tokens: int | None = None
    prompt_ids: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class RequestTurn(Record):
    """Command: answer these messages with one sampled turn."""

    command_id: str
    session_id: str
    issued_at_ms: int
    expires_at_ms: int
    reply: ReplyAddress | None = None
    turn_id: str
    idempotency_key: str | None = None
    retry_count: int = 0
    body_hash: bytes
    dialect: str = "openai.chat"
    messages: tuple[bytes, ...] = ()
    tools: bytes | None = None
    template_args: bytes | None = None
    sampling: Sampling
    tool_choice: str = "auto"
    choice: int = 0
    stream: bool
    wants_logprobs: bool = False
    module: str = ""
    agent: str = ""
    deadline_ms: int
    terms: SessionTerms | None = None
    previous_turn: str | None = None
    own_messages: int = 0
    raw: bool = False
    tags: tuple[str, ...] = ()
    wants_token_ids: bool = False


@dataclass(frozen=True, kw_only=True)
class RewardAssigned(Record):
    """Event: a reward was recorded."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str
    reply: ReplyAddress | None = None
    reward: Reward
    final: bool
    idempotency_key: str | None = None
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class RoleAcquired(Record):
    """A worker has taken a role."""

    at_ms: int
    worker: str
    incarnation: str
    role: str
    assignment: int
    slot: int | None = None
    slot_offset: int | None = None
    version: int | None = None
    took_ms: int
    policy: str = ""
    phases_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RoleAssigned(Record):
    """A worker gets a role."""

    epoch: int
    at_ms: int
    assignment: int
    worker: str
    incarnation: str
    role: str
    slot: int | None = None
    gang: str = ""
    gang_epoch: int = 0
    reason: str
    deadline_ms: int
    policy: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RoleReleased(Record):
    """A worker gave up a role and freed its memory."""

    at_ms: int
    worker: str
    incarnation: str
    role: str
    assignment: int
    free_bytes: int
    handed_back: int = 0
    took_ms: int
    phases_ms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunFinished(Record):
    """The run has ended: all steps are done, or all recorded sessions are read. All processes may
    stop."""

    at_ms: int
    steps: int
    reason: str
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class SampleFailed(Record):
    """A session ended in a way that does not count; its sample may be tried again."""

    at_ms: int
    group_id: str
    sample: int
    attempt: int
    cause: str
    detail: str = ""
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class SchedulerClaimed(Record):
    """From here on, this scheduler decides."""

    epoch: int
    scheduler: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class SchedulerSnapshot(Record):
    """The scheduler's state, so that the next scheduler need not read control from its start."""

    epoch: int
    control_offset: int
    state: bytes
    at_ms: int
    release: str = ""


@dataclass(frozen=True, kw_only=True)
class SessionClosed(Record):
    """Event: the session accepts no further turn, and running turns are cut."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str | None = None
    reply: ReplyAddress | None = None
    status: str
    reason: str
    cause: str
    limit: str = ""
    await_reward_until_ms: int
    await_rewards: tuple[str, ...] = ()
    idempotency_key: str | None = None
    call_hash: bytes | None = None
    judges: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SessionFinalized(Record):
    """Event: a session is final. Its trajectory is what the log holds up to here."""

    session_id: str
    epoch: int
    at_ms: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class SessionOpened(Record):
    """Event: a session began."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str
    reply: ReplyAddress | None = None
    policy: str
    policies: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    purpose: str = "train"
    split: str = "train"
    task_id: str = ""
    group_id: str = ""
    sample: int = 0
    attempt: int = 0
    group_size: int = 1
    min_group_size: int = 1
    turn_limit: int = 0
    pinned_version: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    module: str = ""
    agent: str = ""
    creation_version: int
    tokenizer_hash: str
    max_age_ms: int
    max_idle_ms: int
    idempotency_key: str | None = None
    fold_version: int = 1
    fork: ForkedPrefix | None = None
    overrides: Sampling | None = None
    seed_session: SeedSession | None = None


@dataclass(frozen=True, kw_only=True)
class SharedGroup(Record):
    """A group's sessions as signed text, for other people's runs."""

    content: bytes
    signer: str
    signature: bytes
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class StepGroup(Record):
    """A group in an optimizer step's batch, and its sessions."""

    group_id: str
    sessions: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    reused: int = 0
    filtered: str = ""
    pool: str = ""
    replaced: tuple[ReplacedSession, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepCommitted(Record):
    """Report on what an optimizer step trained. It is written before the step's weights are
    published."""

    at_ms: int
    step: int
    lineage: str
    parent_lineage: str = ""
    version: int
    groups: tuple[StepGroup, ...] = ()
    policy: str = ""
    trained_tokens: Mapping[str, int] = field(default_factory=dict)
    methods: tuple[StepMethod, ...] = ()
    control_offset: int = -1
    trained_sha256: str = ""


@dataclass(frozen=True, kw_only=True)
class StepCompleted(Record):
    """An optimizer step is over, and its weights are published."""

    at_ms: int
    step: int
    lineage: str
    version: int
    took_ms: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class StepSkipped(Record):
    """An optimizer step is left out, as it has nothing to train."""

    at_ms: int
    step: int
    reason: str
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class StepStarted(Record):
    """The gang may train."""

    epoch: int
    at_ms: int
    step: int
    gang: str
    gang_epoch: int
    workers: tuple[str, ...] = ()
    policy: str = ""
    devices: int = 0


@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """Run an agent on this task once."""

    policy: str
    purpose: str = "train"
    split: str = "train"
    task_id: str = ""
    group_id: str = ""
    sample: int = 0
    attempt: int = 0
    group_size: int = 1
    min_group_size: int = 1
    turn_limit: int = 0
    pinned_version: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    payload: bytes
    issued_at_ms: int
    deadline_ms: int
    fork: ForkedPrefix | None = None
    overrides: Sampling | None = None
    fork_at: ParentPlace | None = None
    seed_session: SeedSession | None = None
    roles: tuple[EpisodeRole, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrainerHeartbeat(Record):
    """State of a policy's trainer: the process without a device that reads its sessions and leads
    its gang."""

    policy: str
    trainer: str
    address: str
    token: str
    state: str
    step: int = 0
    at_ms: int
    release: str = ""
    ending: bool = False


@dataclass(frozen=True, kw_only=True)
class VersionSpan(Record):
    """A run of tokens sampled under one policy version. It ends where the next span starts."""

    start: int
    version_min: int
    version_max: int
    kv: str = "recomputed"


@dataclass(frozen=True, kw_only=True)
class TrajectoryNode(Record):
    """A run of tokens after a parent node, and where it lies in the trajectory's arrays."""

    node_id: int
    parent: int
    parent_end: int
    start: int
    length: int
    origin: str
    turn_id: str
    policy: str = ""
    adapter: str = ""
    module: str = ""
    behavior_exact: bool = True
    logprob_temperature: float = 1.0
    delivered: bool = False
    finish_reason: str = ""
    match_rule: str = ""
    masked_reason: str = ""
    reward: float | None = None
    log_offset: int
    control: str = ""
    control_at: int = 0
    control_exempt: bool = False
    intervened: bool = False


@dataclass(frozen=True, kw_only=True)
class Trajectory(Record):
    """One finalized session: its tree's tokens, each once; no tokens if it failed or is too
    large."""

    session_id: str
    policy: str
    purpose: str = "train"
    split: str = "train"
    task_id: str = ""
    group_id: str = ""
    sample: int = 0
    attempt: int = 0
    group_size: int = 1
    min_group_size: int = 1
    pinned_version: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    tokens: bytes
    logprobs: bytes
    loss_mask: bytes
    spans: tuple[VersionSpan, ...] = ()
    nodes: tuple[TrajectoryNode, ...] = ()
    tensors: tuple[TokenTensor, ...] = ()
    rewards: tuple[Reward, ...] = ()
    status: str
    reason: str
    cause: str
    limit: str = ""
    creation_version: int
    version_min: int | None = None
    version_max: int | None = None
    turns: int
    interrupted_turns: int = 0
    match_rules: Mapping[str, int] = field(default_factory=dict)
    masked_tokens: Mapping[str, int] = field(default_factory=dict)
    ignored_events: Mapping[str, int] = field(default_factory=dict)
    tokenizer_hash: str
    partition: int
    first_offset: int
    last_offset: int
    opened_at_ms: int
    closed_at_ms: int
    finalized_at_ms: int
    fold_version: int
    fork: ForkOrigin | None = None
    seed_session: SeedSession | None = None


@dataclass(frozen=True, kw_only=True)
class TurnCancelled(Record):
    """Event: a turn was ended because no client waits for it."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str | None = None
    turn_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class TurnCompleted(Record):
    """Event: a turn was sampled to its end."""

    session_id: str
    turn_id: str
    dispatch: int
    worker: str
    incarnation: str
    token_offset: int
    token_ids: bytes
    logprobs: bytes
    spans: tuple[VersionSpan, ...] = ()
    tensors: tuple[TokenTensor, ...] = ()
    at_ms: int
    delta: bytes | None = None
    finish_reason: str
    message: bytes
    well_formed: bool
    prompt_length: int
    prompt_hash: bytes
    stop_sequence: str | None = None
    reasoning_tokens: int | None = None
    control: str = ""
    control_at: int = 0
    control_ends: str = ""
    control_error: str = ""


@dataclass(frozen=True, kw_only=True)
class TurnDispatched(Record):
    """Event: a turn was given to a worker."""

    session_id: str
    epoch: int
    at_ms: int
    turn_id: str
    dispatch: int
    from_offset: int
    worker: str
    incarnation: str
    slot: int
    reason: str
    no_progress_ms: int


@dataclass(frozen=True, kw_only=True)
class TurnFailed(Record):
    """Event: a turn ends without an answer."""

    session_id: str
    turn_id: str
    epoch: int | None = None
    dispatch: int | None = None
    worker: str | None = None
    incarnation: str | None = None
    status: int
    reason: str
    detail: str
    cause: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class TurnInterrupted(Record):
    """Event: a worker stopped in the middle of a turn and hands back what it sampled."""

    session_id: str
    turn_id: str
    dispatch: int
    worker: str
    incarnation: str
    token_offset: int
    token_ids: bytes
    logprobs: bytes
    spans: tuple[VersionSpan, ...] = ()
    tensors: tuple[TokenTensor, ...] = ()
    at_ms: int
    delta: bytes | None = None
    reason: str
    control_state: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class TurnJoined(Record):
    """Event: a retry asks for a turn that is under way or done."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str
    turn_id: str
    reply: ReplyAddress | None = None


@dataclass(frozen=True, kw_only=True)
class TurnPlayedBack(Record):
    """Event: a request of a forked session is answered with a copied turn."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str
    turn_id: str
    reply: ReplyAddress | None = None
    idempotency_key: str | None = None
    retry_count: int = 0
    body_hash: bytes
    choice: int = 0


@dataclass(frozen=True, kw_only=True)
class TurnProgressed(Record):
    """Event: a worker sampled more tokens of a turn; without tokens, it shows that the turn is
    not lost."""

    session_id: str
    turn_id: str
    dispatch: int
    worker: str
    incarnation: str
    token_offset: int
    token_ids: bytes
    logprobs: bytes
    spans: tuple[VersionSpan, ...] = ()
    tensors: tuple[TokenTensor, ...] = ()
    at_ms: int
    delta: bytes | None = None
    control_state: bytes | None = None


@dataclass(frozen=True, kw_only=True)
class TurnStarted(Record):
    """Event: a turn was matched against the session's tree and its prompt rendered."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str
    turn_id: str
    reply: ReplyAddress | None = None
    parent_node: int
    parent_end: int
    suffix_ids: bytes
    suffix_origin: str
    prompt_length: int
    prompt_hash: bytes
    match_rule: str
    match_detail: str = ""
    ambiguous: bool = False
    parent_turn: str | None = None
    new_messages: tuple[bytes, ...] = ()
    history_key: bytes
    tools: bytes | None = None
    sampling_requested: Sampling
    sampling_effective: Sampling
    behavior_exact: bool
    inexact_reason: str = ""
    train_inexact: bool = False
    train_undelivered: bool = True
    siblings: str = "continued"
    max_context: int = 0
    logprob_temperature: float = 1.0
    policy: str
    adapter: str = ""
    module: str = ""
    stream: bool
    wants_logprobs: bool = False
    deadline_ms: int
    idempotency_key: str | None = None
    retry_count: int = 0
    body_hash: bytes
    choice: int = 0
    media: tuple[Media, ...] = ()
    previous_turn: str | None = None
    own_messages: int = 0
    raw: bool = False
    prefill: int = 0
    template_args: bytes | None = None
    matching: bytes | None = None
    answer_differs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    control: TurnControl | None = None
    seed: int | None = None
    frozen: bool = False
    intervened: bool = False
    wants_token_ids: bool = False


@dataclass(frozen=True, kw_only=True)
class TurnUndelivered(Record):
    """Event: a turn completed, but its client left before it had the answer."""

    session_id: str
    epoch: int
    at_ms: int
    command_id: str
    turn_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class WeightsLoaded(Record):
    """A worker serves new weights."""

    at_ms: int
    policy: str
    version: int
    worker: str
    incarnation: str
    took_ms: int


@dataclass(frozen=True, kw_only=True)
class WeightsPublished(Record):
    """New weights are on disk."""

    at_ms: int
    policy: str
    version: int
    step: int
    lineage: str
    kind: str = "full"
    base_version: int | None = None
    directory: str
    manifest_sha256: str
    tensors_hash: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerAssignment(Record):
    """The last role that a worker was given."""

    worker: str
    incarnation: str
    role: str
    slot: int | None = None
    epoch: int
    assignment: int
    at_ms: int
    policy: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerHeartbeat(Record):
    """State of one of a worker's processes, every second."""

    worker: str
    incarnation: str
    process: str
    tags: tuple[str, ...] = ()
    role: str
    assignment: int
    slot: int | None = None
    state: str
    version: int | None = None
    policy: str = ""
    running: int = 0
    waiting: int = 0
    capacity: int = 0
    hardware: Mapping[str, float] = field(default_factory=dict)
    at_ms: int
    release: str = ""
    devices: tuple[int, ...] = ()
    rendezvous: str = ""
    weights_address: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkerJoined(Record):
    """The scheduler now counts on this process of a worker."""

    epoch: int
    at_ms: int
    worker: str
    incarnation: str
    process: str
    tags: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkerLost(Record):
    """The scheduler no longer counts on this process of a worker."""

    epoch: int
    at_ms: int
    worker: str
    incarnation: str
    process: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class WorkerUsage(Record):
    """Report of how a worker's process spent a stretch of time."""

    at_ms: int
    worker: str
    incarnation: str
    process: str
    from_ms: int
    decoding_ms: int = 0
    training_ms: int = 0
    loading_ms: int = 0
    idle_ms: int = 0
    tokens: int = 0
    full_batch_ms: int = 0
    recomputing_ms: int = 0
    computing_ms: int | None = None


RECORDS: Mapping[str, type[Record]] = {
    "ArmSnapshot": ArmSnapshot,
    "ReplyAddress": ReplyAddress,
    "Reward": Reward,
    "AssignReward": AssignReward,
    "AssignmentTimedOut": AssignmentTimedOut,
    "StepMethod": StepMethod,
    "BatchReady": BatchReady,
    "BlobReference": BlobReference,
    "CancelGeneration": CancelGeneration,
    "CancelTurn": CancelTurn,
    "CloseSession": CloseSession,
    "CommandAnswered": CommandAnswered,
    "CommandRefused": CommandRefused,
    "SessionTerms": SessionTerms,
    "CountTokens": CountTokens,
    "DescribeSession": DescribeSession,
    "EndedSession": EndedSession,
    "EpisodeRole": EpisodeRole,
    "EvaluationCompleted": EvaluationCompleted,
    "ForkOrigin": ForkOrigin,
    "ForkedPrompt": ForkedPrompt,
    "ForkedTurn": ForkedTurn,
    "ForkedPrefix": ForkedPrefix,
    "GatewayHeartbeat": GatewayHeartbeat,
    "Sampling": Sampling,
    "TurnControl": TurnControl,
    "GenerateTurn": GenerateTurn,
    "GenerationPaused": GenerationPaused,
    "GenerationResumed": GenerationResumed,
    "ParentPlace": ParentPlace,
    "SeedSession": SeedSession,
    "GroupAdmitted": GroupAdmitted,
    "GroupConsumed": GroupConsumed,
    "GroupDropped": GroupDropped,
    "GroupExpired": GroupExpired,
    "GroupReady": GroupReady,
    "LineageStarted": LineageStarted,
    "ManagerStarted": ManagerStarted,
    "Media": Media,
    "OpenSession": OpenSession,
    "PartitionClaimed": PartitionClaimed,
    "PlanWarning": PlanWarning,
    "PolicyWeights": PolicyWeights,
    "ProgressStalled": ProgressStalled,
    "ReplacedSession": ReplacedSession,
    "TokenTensor": TokenTensor,
    "ReplyDelta": ReplyDelta,
    "ReplyFinished": ReplyFinished,
    "RequestTurn": RequestTurn,
    "RewardAssigned": RewardAssigned,
    "RoleAcquired": RoleAcquired,
    "RoleAssigned": RoleAssigned,
    "RoleReleased": RoleReleased,
    "RunFinished": RunFinished,
    "SampleFailed": SampleFailed,
    "SchedulerClaimed": SchedulerClaimed,
    "SchedulerSnapshot": SchedulerSnapshot,
    "SessionClosed": SessionClosed,
    "SessionFinalized": SessionFinalized,
    "SessionOpened": SessionOpened,
    "SharedGroup": SharedGroup,
    "StepGroup": StepGroup,
    "StepCommitted": StepCommitted,
    "StepCompleted": StepCompleted,
    "StepSkipped": StepSkipped,
    "StepStarted": StepStarted,
    "Task": Task,
    "TrainerHeartbeat": TrainerHeartbeat,
    "VersionSpan": VersionSpan,
    "TrajectoryNode": TrajectoryNode,
    "Trajectory": Trajectory,
    "TurnCancelled": TurnCancelled,
    "TurnCompleted": TurnCompleted,
    "TurnDispatched": TurnDispatched,
    "TurnFailed": TurnFailed,
    "TurnInterrupted": TurnInterrupted,
    "TurnJoined": TurnJoined,
    "TurnPlayedBack": TurnPlayedBack,
    "TurnProgressed": TurnProgressed,
    "TurnStarted": TurnStarted,
    "TurnUndelivered": TurnUndelivered,
    "WeightsLoaded": WeightsLoaded,
    "WeightsPublished": WeightsPublished,
    "WorkerAssignment": WorkerAssignment,
    "WorkerHeartbeat": WorkerHeartbeat,
    "WorkerJoined": WorkerJoined,
    "WorkerLost": WorkerLost,
    "WorkerUsage": WorkerUsage,
}
