"""Settings of the agents process, `SEAMLESSFLOW_AGENTS__*`. Importable without Kafka."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, SecretStr, StringConstraints, model_validator

from seamlessflow.infra.settings import ProcessSettings, Section, SentKey, SharedPacingSection


class AgentsSection(Section):
    """The agent to run, and its limits."""

    callable: str = Field(
        "",
        description="Agent as a Python callable, module:function; see producers/agents/harness/"
        "session.py for its signature. Exactly one of callable, command and environment is set",
    )
    command: tuple[str, ...] = Field(
        (),
        description="Agent as a command line, a JSON list. It reads the task as JSON from "
        "standard input. The last line of its output may be a JSON object with its reward",
    )
    environment: str = Field(
        "",
        description="Agent and tasks as an environment package: reasoning_gym (see "
        "docs/agents/environments.md), or FILE.py with an adapter of your own",
    )
    settings: dict[str, JsonValue] = Field(
        default_factory=dict, description="Settings of the environment, by its adapter's names"
    )
    environment_python: Path | None = Field(
        None,
        description="Python in which the environment runs; none: that of `seamlessflow "
        "environments install`, and this one for an adapter of your own",
    )
    environment_processes: int = Field(
        1, ge=1, description="Most processes of the environment at the same time"
    )
    environment_episodes: int = Field(
        0,
        ge=0,
        description="Most episodes of a process of the environment: then another one takes its "
        "place, and all that it left behind ends with it; 0: no limit",
    )
    environment_limit: int = Field(
        0, ge=0, description="Most episodes of the environment at the same time; 0: concurrency"
    )
    warm_up_limit_s: float = Field(
        600, gt=0, description="Seconds until a process of the environment must be ready"
    )
    reward: str = Field(
        "",
        description="Judge as a Python callable, module:function, called as (task, result). It "
        "returns the reward, or a mapping with rewards like an agent's; empty: the agent returns "
        "its rewards itself",
    )
    rewards: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(
        ("reward",),
        description="Names of the rewards that a session needs of its agent; a run takes those "
        "that trainer.rewards weighs and no judge gives",
    )
    name: str = Field("", description="Name of the agent program in sessions and trajectories")
    modules: dict[str, str] = Field(
        default_factory=dict,
        description="Policy for each module of the agent, named by its calls' header "
        "x-seamlessflow-module; the task's policy answers all other modules",
    )
    roles: dict[str, str] = Field(
        default_factory=dict,
        description="Policy for each role of an episode, by the role's name: the agent then gets a "
        "session for each role, and returns the rewards of each (docs/agents/roles.md)",
    )
    gateway_url: str = Field(
        "http://127.0.0.1:8800",
        description="URL of the gateway, or of several, with commas. Sessions are opened at each "
        "in turn, and an unanswered call goes to the next",
    )
    admin_key: SentKey = Field(
        SecretStr(""), description="The gateway's admin key; never shown to an agent"
    )
    forks: Literal["none", "middle", "playback"] = Field(
        "none",
        description="How a session goes on from an ended one (pacing.forks_live). middle: the "
        "agent begins with session.messages; playback: it begins anew, and its first calls get "
        "the recorded answers; none: it cannot",
    )
    group: str = Field(
        "agents", description="Kafka consumer group; processes of one group share the tasks"
    )
    concurrency: int = Field(
        64,
        ge=1,
        description="Most agents that this process runs at the same time. A run with a callable "
        "has more by default if its engines have turns for them (docs/laptop-to-gpu.md)",
    )
    time_limit_s: float = Field(
        600,
        gt=0,
        description="An agent is stopped after this many seconds, or at its task's deadline if "
        "that is earlier. Time in which no engine is ready does not count",
    )
    reward_limit_s: float = Field(60, gt=0, description="Seconds the judge may take")
    on_timeout: Literal["zero", "retry", "drop"] = Field(
        "zero",
        description="What an agent that was stopped at its time limit is worth. zero: "
        "timeout_reward, and its turns are trained; retry: nothing, the sample is tried again; "
        "drop: nothing, the group goes on without it",
    )
    timeout_reward: float = Field(
        0,
        allow_inf_nan=False,
        description='Reward named "reward" of such an agent if on_timeout is zero; without effect '
        "where that name does not count",
    )
    on_limit: Literal["zero", "retry", "drop"] = Field(
        "zero",
        description="What a session at a limit is worth if its agent failed or gave no reward. "
        "Its last prompt exceeded the context, or its last answer was cut at max_tokens. zero: "
        "its reward, 0 without one, and its turns are trained; retry, drop: as for on_timeout. "
        "What is no reward, such as NaN or a text, is the agent's error: told, and tried again",
    )
    await_reward_s: float = Field(
        0,
        ge=0,
        description="Seconds to wait for rewards that come from elsewhere, if the agent did not "
        "return all that its session needs",
    )
    call_limit_s: float = Field(
        30,
        gt=0,
        description="Seconds to wait for the answer to a call that opens, rewards or closes a "
        "session; then it is made again",
    )
    drain_s: float = Field(
        5, ge=0, description="Seconds that running agents may still take when the process ends"
    )


class AgentsSettings(ProcessSettings):
    """All settings of `python -m seamlessflow.producers.agents`."""

    agents: AgentsSection = Field(default_factory=AgentsSection)
    pacing: SharedPacingSection = Field(default_factory=SharedPacingSection)

    @model_validator(mode="after")
    def _one_agent(self) -> Self:
        agents = self.agents
        if sum(map(bool, (agents.callable, agents.command, agents.environment))) != 1:
            text = "exactly one of agents.callable, agents.command and agents.environment"
            raise ValueError(f"{text} must be set")
        return self
