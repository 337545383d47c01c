"""Settings of the agents process, `SEAMLESSFLOW_AGENTS__*`. Importable without Kafka."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, SecretStr, StringConstraints, model_validator

from seamlessflow.infra.settings import ProcessSettings, Section, SentKey, SharedPacingSection


class AgentsSection(Section):
    """The agent to run, and its limits."""

    callable: str = Field(
        "",
        description="Agent as a Python callable, module:function; "
        "producers/agents/harness/session.py shows its signature. Set exactly one of callable, "
        "command and environment",
    )
    command: tuple[str, ...] = Field(
        (),
        description="Agent as a command line, a JSON list. It reads the task as JSON from standard "
        "input. The last line that it prints may be a JSON object with its reward",
    )
    environment: str = Field(
        "",
        description="Agent and tasks from an environment package: reasoning_gym (see "
        "docs/agents/environments.md), or FILE.py with your own adapter",
    )
    settings: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Settings for the environment, by the names that its adapter uses",
    )
    environment_python: Path | None = Field(
        None,
        description="Python in which the environment runs; none: the one that `seamlessflow "
        "environments install` made, or this one for your own adapter",
    )
    environment_processes: int = Field(
        1, ge=1, description="Most environment processes at the same time"
    )
    environment_episodes: int = Field(
        0,
        ge=0,
        description="Most episodes in one environment process. Then a new process takes its place, "
        "and all that the old one left behind ends with it; 0: no limit",
    )
    environment_limit: int = Field(
        0, ge=0, description="Most environment episodes at the same time; 0: as many as concurrency"
    )
    warm_up_limit_s: float = Field(
        600, gt=0, description="Seconds until an environment process must be ready"
    )
    reward: str = Field(
        "",
        description="Judge as a Python callable, module:function, called as (task, result). It "
        "returns the reward, or a mapping with several rewards as an agent may; empty: the agent "
        "returns its own rewards",
    )
    rewards: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(
        ("reward",),
        description="Names of the rewards that the agent must return for a session. A run fills in "
        "those that trainer.rewards weighs and no judge gives",
    )
    name: str = Field("", description="The agent program's name in sessions and trajectories")
    modules: dict[str, str] = Field(
        default_factory=dict,
        description="Policy for each agent module. A call names its module in the header "
        "x-seamlessflow-module; the task's policy answers all other modules",
    )
    roles: dict[str, str] = Field(
        default_factory=dict,
        description="Policy for each role in an episode, by role name. The agent then gets a "
        "session for each role, and returns each role's rewards (docs/agents/roles.md)",
    )
    gateway_url: str = Field(
        "http://127.0.0.1:8800",
        description="The gateway's URL, or several with commas. Sessions are opened at each in "
        "turn, and a call without an answer goes to the next",
    )
    admin_key: SentKey = Field(
        SecretStr(""), description="The gateway's admin key; agents never see it"
    )
    forks: Literal["none", "middle", "playback"] = Field(
        "none",
        description="How a session can go on from an ended one (pacing.forks_live). middle: the "
        "agent begins with session.messages; playback: it begins from the start, and its first "
        "calls get the recorded answers; none: it cannot",
    )
    group: str = Field(
        "agents", description="Kafka consumer group; all processes in it share the tasks"
    )
    concurrency: int = Field(
        64,
        ge=1,
        description="Most agents that this process runs at the same time. A run with a callable "
        "has more by default if its engines have room for them (docs/laptop-to-gpu.md)",
    )
    time_limit_s: float = Field(
        600,
        gt=0,
        description="Seconds after which an agent is stopped; its task's deadline may come "
        "earlier. Time in which no engine is ready does not count",
    )
    reward_limit_s: float = Field(60, gt=0, description="Seconds that the judge may take")
    on_timeout: Literal["zero", "retry", "drop"] = Field(
        "zero",
        description="What happens to an agent that was stopped at its time limit. zero: it gets "
        "timeout_reward, and its turns are trained; retry: its sample is tried again; drop: the "
        "group goes on without it",
    )
    timeout_reward: float = Field(
        0,
        allow_inf_nan=False,
        description='Reward named "reward" for such an agent if on_timeout is zero; it has no '
        "effect if that name does not count",
    )
    on_limit: Literal["zero", "retry", "drop"] = Field(
        "zero",
        description="What happens if the last prompt exceeded the context, or the last answer was "
        "cut at max_tokens, and the agent then failed or gave no reward. zero: the session keeps "
        "its reward, or gets 0, and its turns are trained; retry, drop: as for on_timeout. A value "
        "that is no reward, such as NaN or a text, is reported as the agent's error and tried "
        "again",
    )
    await_reward_s: float = Field(
        0,
        ge=0,
        description="Seconds to wait for rewards from elsewhere, if the agent did not return all "
        "that its session needs",
    )
    call_limit_s: float = Field(
        30,
        gt=0,
        description="Seconds to wait for an answer when opening, rewarding or closing a session; "
        "then the call is repeated",
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
