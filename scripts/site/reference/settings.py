"""Reference for settings: a run's, then those that only processes have."""

from collections.abc import Iterable, Iterator

from scripts.site.reference.markdown import code, entry, form_facts, plain
from seamlessflow.config import RunConfig
from seamlessflow.infra.help import ExplainedSetting, every_setting
from seamlessflow.infra.settings import ProcessSettings
from seamlessflow.infra.variables import variable

_INTRODUCTION = """# Settings

This page is for a person who writes a run configuration. It has every setting of the YAML file.
A variable of the environment overrides the file.

```yaml
run: {steps: 50}      # in the file; as a variable: SEAMLESSFLOW_RUN__STEPS=50
```

`NAME` stands for any name, and `[]` for each place of a list. The variable of such a setting is
that of the whole list or map, as JSON. `seamlessflow settings WORD` prints the same text.
"""
_ALONE = """
## Single processes

No run configuration has these. A process that is started alone reads them.
"""


def page() -> str:
    """Return the whole page."""
    settings = list(every_setting(RunConfig))
    paths = {setting.path for setting in settings}
    alone = [setting for setting in every_setting(ProcessSettings) if setting.path not in paths]
    return "\n".join([_INTRODUCTION, *_sections(settings), _ALONE, *map(_entry, alone)])


def setting_variable(path: str) -> str:
    """Return the variable for a setting, or for the list or map that holds it."""
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
    small = [*form_facts(setting.form), code(setting_variable(setting.path))]
    return entry(setting.path, plain(setting.meaning), small)
