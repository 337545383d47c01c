"""Reference for the gateway's HTTP interface, from its routes and the session bodies."""

from collections.abc import Mapping

from pydantic import BaseModel

from scripts.site.reference.markdown import entry, form_facts, plain
from seamlessflow.infra.help import every_setting
from seamlessflow.producers.gateway.calls.sessions import CloseBody, OpenBody, RewardBody
from seamlessflow.producers.gateway.routes import ROUTES

_INTRODUCTION = """# HTTP interface

This page has each path of the gateway. `MODEL` and `ID` stand for a model and a session.
A path below `/v1` or `/v1beta` also exists below `/sessions/ID`, where it means that session.

[The gateway](../docs/gateway.md) has limits and errors.
[Agents](../runbooks/agents.md) has examples.
"""
_BODIES: Mapping[str, type[BaseModel]] = {
    "open": OpenBody,
    "reward": RewardBody,
    "close": CloseBody,
}


def page() -> str:
    """Return the whole page."""
    calls = [entry(title(path), plain(route.meaning)) for path, route in ROUTES.items()]
    bodies = [
        _section(title(path), _BODIES[route.name])
        for path, route in ROUTES.items()
        if route.name in _BODIES
    ]
    return "\n".join([_INTRODUCTION, *calls, *bodies])


def title(path: str) -> str:
    """Return a route's method and path, with the name for what `*` stands for."""
    name = "ID" if path.startswith("/sessions") else "MODEL"
    return f"{ROUTES[path].method} {path.replace('*', name)}"


def _section(title: str, body: type[BaseModel]) -> str:
    members = [entry(member.path, "", form_facts(member.form)) for member in every_setting(body)]
    return "\n".join([f"\n## {title}\n\nMembers of the body:\n", *members])
