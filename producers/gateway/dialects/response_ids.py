"""What dialects call a response: a prefix of theirs and the id of its turn. Pure."""

CHAT = "chatcmpl-"
COMPLETION = "cmpl-"
MESSAGE = "msg_"
RESPONSE = "resp_"
_PREFIXES = (CHAT, COMPLETION, MESSAGE, RESPONSE)


def turn_of(response_id: str) -> str:
    """The turn that a response of any dialect answers; a turn's own id is taken as well."""
    for prefix in _PREFIXES:
        if response_id.startswith(prefix):
            return response_id.removeprefix(prefix)
    return response_id
