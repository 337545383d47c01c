"""The command `seamlessflow methods`: the methods of each seam, with settings and sources."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from seamlessflow.seams.listing import ListedMethod
    from seamlessflow.seams.seams import Seam

_HOW = "Each of them also takes module:function of your own: docs/algorithms/own-functions.md."


def methods(
    which: Annotated[
        str, typer.Argument(metavar="[SETTING]", help="Such as surrogate; by default all.")
    ] = "",
) -> None:
    """List methods: settings that name one, their names, settings, defaults and papers."""
    from seamlessflow.infra.faults import suggestion
    from seamlessflow.seams.listing import listed_methods

    seams = {".".join(seam.setting): (seam, listed) for seam, listed in listed_methods()}
    chosen = [name for name in seams if which in name]
    if not chosen:
        text = f"no setting like {which!r} names a method{suggestion(which, seams)}"
        raise typer.BadParameter(text, param_hint="SETTING")
    for name in chosen:
        _show(name, *seams[name])
    typer.echo(_HOW)


def _show(name: str, seam: "Seam", listed: "list[ListedMethod]") -> None:
    typer.echo(f"{name}   ({', '.join(seam.arguments)}) -> {seam.returns}")
    for method in listed:
        source = f"  [{method.source}]" if method.source else ""
        typer.echo(f"  {method.name:<22} {method.meaning}{source}")
        for path, default in method.settings.items():
            shown = "none" if default is None else default
            typer.echo(f"  {'':<22} {path}: {shown}")
    typer.echo()
