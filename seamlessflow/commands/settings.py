"""The commands that explain a run configuration: `seamlessflow settings`, and `methods`.

The second lists each seam's methods, with settings and sources.
"""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seamlessflow.infra.help import ExplainedSetting
    from seamlessflow.seams.listing import ListedMethod
    from seamlessflow.seams.seams import Seam

_OWN = "Each of them also takes module:function of your own: docs/algorithms/own-functions.md."
_HOW = """
seamlessflow settings SECTION   explains those of a section, such as trainer.loss
seamlessflow settings WORD      those with a word, such as temperature
seamlessflow settings --all     all of them
A variable overrides the file: SEAMLESSFLOW_RUN__STEPS=50 is run: {steps: 50}."""


def settings(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[SECTION|WORD]",
            help="Section, setting or word to explain; by default an overview.",
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Explain all settings.")] = False,
) -> None:
    """Explain a run configuration's settings, by their paths in YAML."""
    from seamlessflow.config import RunConfig
    from seamlessflow.infra.faults import suggestion
    from seamlessflow.infra.help import every_setting

    explained = list(every_setting(RunConfig))
    if not which and not everything:
        overview()
        return
    chosen = explained if everything else _chosen(explained, which)
    if not chosen:
        names = {part for setting in explained for part in setting.path.split(".")}
        text = f"no setting has {which!r} in its path or its text{suggestion(which, names)}"
        raise typer.BadParameter(text, param_hint="SECTION|WORD")
    for setting in chosen:
        typer.echo(f"{setting.path}  ({setting.form})\n    {setting.meaning}")


def overview() -> None:
    """Print a line for each section, and how to ask for more."""
    from seamlessflow.config import RunConfig
    from seamlessflow.infra.help import every_setting

    paths = [setting.path for setting in every_setting(RunConfig)]
    for name, field in RunConfig.model_fields.items():
        inside = [path for path in paths if path.startswith((f"{name}.", f"{name}["))]
        count = f"{len(inside)} settings" if inside else "a setting"
        typer.echo(f"{name:<16} {count:>13}  {field.description}")
    typer.echo(_HOW)


def _chosen(explained: "Sequence[ExplainedSetting]", which: str) -> "list[ExplainedSetting]":
    """Return a section's settings, or else those with a word."""
    word = which.lower().removesuffix(".")
    section = [
        setting
        for setting in explained
        if setting.path == word or setting.path.startswith((f"{word}.", f"{word}["))
    ]
    return section or [
        setting
        for setting in explained
        if word in setting.path.lower() or word in setting.meaning.lower()
    ]


def methods(
    which: Annotated[
        str,
        typer.Argument(
            metavar="[SETTING]",
            help="Setting whose methods are listed, such as surrogate; by default all.",
        ),
    ] = "",
) -> None:
    """List the methods that a setting can name, with their settings, defaults and papers."""
    from seamlessflow.infra.faults import suggestion
    from seamlessflow.seams.listing import listed_methods

    seams = {".".join(seam.setting): (seam, listed) for seam, listed in listed_methods()}
    chosen = [name for name in seams if which in name]
    if not chosen:
        text = f"no setting like {which!r} names a method{suggestion(which, seams)}"
        raise typer.BadParameter(text, param_hint="SETTING")
    for name in chosen:
        _show(name, *seams[name])
    typer.echo(_OWN)


def _show(name: str, seam: "Seam", listed: "list[ListedMethod]") -> None:
    typer.echo(f"{name}   ({', '.join(seam.arguments)}) -> {seam.returns}")
    for method in listed:
        source = f"  [{method.source}]" if method.source else ""
        typer.echo(f"  {method.name:<22} {method.meaning}{source}")
        for path, default in method.settings.items():
            shown = "none" if default is None else default
            typer.echo(f"  {'':<22} {path}: {shown}")
    typer.echo()
