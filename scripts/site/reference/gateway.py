"""Reference of the HTTP interface of the gateway, from its routes and the bodies of sessions."""

from pydantic import BaseModel

from scripts.site.reference.markdown import code, default, plain, table
from seamlessflow.infra.help import every_setting
from seamlessflow.producers.gateway.calls.sessions import CloseBody, OpenBody, RewardBody
from seamlessflow.producers.gateway.routes import ROUTES

_INTRODUCTION = """# HTTP interface

This page has each path of the gateway. `MODEL` and `ID` stand for a model and a session.
A path below `/v1` or `/v1beta` also exists below `/sessions/ID`, where it means that session.

[The gateway](../docs/gateway.md) has limits and errors, [agents](../runbooks/agents.md) has examples.

"""
_BODIES = {"open": OpenBody, "reward": RewardBody, "close": CloseBody}


def page() -> str:
    """Return the whole page."""
    rows = [
        (route.method, code(shown(path)), plain(route.meaning)) for path, route in ROUTES.items()
    ]
    sections = [
        _section(f"{route.method} {shown(path)}", _BODIES[route.name])
        for path, route in ROUTES.items()
        if route.name in _BODIES
    ]
    return _INTRODUCTION + table(("method", "path", "a call"), rows) + "".join(sections)


def shown(path: str) -> str:
    """Return a path with the name of the thing that `*` stands for."""
    return path.replace("*", "ID" if path.startswith("/sessions") else "MODEL")


def _section(title: str, body: type[BaseModel]) -> str:
    rows = []
    for member in every_setting(body):
        form, optional, value = member.form.partition("; default: ")
        fact = default(value).removeprefix("default ") if optional else "required"
        rows.append((code(member.path), code(form.removesuffix("; required")), fact))
    return f"\n## {title}\n\n{table(('member', 'type', 'default'), rows)}"
