"""Reference of settings: those of a run, then those that a single process alone has."""

from collections.abc import Iterable, Iterator

from pydantic import BaseModel

from scripts.site.reference.markdown import code, default, entry, plain
from seamlessflow.config import RunConfig
from seamlessflow.consumers.trajectories.settings import ManagerSettings
from seamlessflow.infra.help import ExplainedSetting, every_setting
from seamlessflow.infra.variables import variable
from seamlessflow.producers.agents.settings import AgentsSettings
from seamlessflow.producers.gateway.settings import GatewaySettings
from seamlessflow.producers.rollout.settings import RolloutSettings
from seamlessflow.recorded.audit.audit import AuditSettings
from seamlessflow.scheduler.settings import SchedulerSettings
from seamlessflow.trainer.settings import TrainerSettings

PROCESSES: tuple[type[BaseModel], ...] = (
    AgentsSettings,
    AuditSettings,
    GatewaySettings,
    ManagerSettings,
    RolloutSettings,
    SchedulerSettings,
    TrainerSettings,
)
_INTRODUCTION = """# Settings

This page is for a person who writes a run configuration. It has every setting of the YAML file.
A variable of the environment overrides the file.

```yaml
run: {steps: 50}      # in the file; as a variable: SEAMLESSFLOW_RUN__STEPS=50
```

`NAME` stands for any name, and `[]` for each place of a list. The variable of such a setting is
that of the whole list or map, as JSON. `seamlessflow settings WORD` prints the same text.
"""


def page() -> str:
    """Return the whole page."""
    settings = list(every_setting(RunConfig))
    variables = {setting_variable(setting.path) for setting in settings}
    alone = [
        setting
        for path, setting in {s.path: s for kind in PROCESSES for s in every_setting(kind)}.items()
        if setting_variable(path) not in variables
    ]
    parts = [_INTRODUCTION, *_sections(settings), "\n## Single processes\n"]
    parts.append("No run configuration has these. A process that is started alone reads them.\n")
    return "\n".join([*parts, *map(_entry, alone)])


def setting_variable(path: str) -> str:
    """Return the variable of a setting, or of the list or map that holds it."""
    whole = path.split("[]")[0].split(".NAME")[0]
    return variable(tuple(whole.split(".")))


def _sections(settings: Iterable[ExplainedSetting]) -> Iterator[str]:
    groups: dict[str, dict[str, list[str]]] = {"": {"": []}}
    for setting in settings:
        group = setting.path.rpartition(".")[0]
        section = groups.setdefault(group.split(".")[0].removesuffix("[]"), {})
        section.setdefault(group, []).append(_entry(setting))
    for name, inner in groups.items():
        description = RunConfig.model_fields[name].description if name else "Settings of no section"
        yield f"\n## {name or 'The run'}\n\n{plain(description or '')}.\n"
        # A section's own settings come first, so that none stands below another's heading.
        for group in sorted(inner, key=lambda group: "." in group):
            if "." in group:
                yield f"\n### {group} {{ #{group} }}\n"
            yield from inner[group]


def _entry(setting: ExplainedSetting) -> str:
    form, optional, value = setting.form.partition("; default: ")
    facts = [
        code(form.removesuffix("; required")),
        default(value) if optional else "required",
        code(setting_variable(setting.path)),
    ]
    return entry(setting.path, plain(setting.meaning), facts)
