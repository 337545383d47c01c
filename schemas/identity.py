"""How ids are made, where one is a function of others."""


def session_id(group_id: str, sample: int, attempt: int) -> str:
    """Session of one try at one sample of a group."""
    return f"{group_id}.{sample}.{attempt}"


def named_session_id(name: str, command_id: str) -> str:
    """Session that a request named and nobody opened; the request tells it from all others."""
    return f"{name}~{command_id}"


def session_name(session_id: str) -> str:
    """What a session's commands and events have in common: its name, or its id without one."""
    return session_id.partition("~")[0]


def tool_call_id(turn_id: str, number: int) -> str:
    """Public id of a turn's n-th tool call; it names the turn to whoever sends it back."""
    return f"call_{turn_id}_{number}"


def turn_of_tool_call(public_id: str) -> str | None:
    """The turn that a public tool-call id names, if it is one of ours."""
    prefix, _, rest = public_id.partition("_")
    turn_id, _, number = rest.rpartition("_")
    return turn_id if prefix == "call" and turn_id and number.isdigit() else None
