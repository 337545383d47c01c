"""Server-sent events, the same bytes for all dialects. Pure.

An event's JSON stands on one line. The standard ends a line at CR and LF alone, but some clients
read a stream by lines of text and end one at U+0085, U+2028 and U+2029 too. JSON may hold these
three as they are; here they are always escaped.
"""

_NEXT_LINE, _SEPARATORS = "\x85".encode(), b"\xe2\x80"
"""U+0085, and the first bytes of U+2028 and U+2029, which many quotation marks share."""
_ESCAPED = {end.encode(): f"\\u{ord(end):04x}".encode() for end in "\x85\u2028\u2029"}
_SPACES = bytes.maketrans(b"\r\n", b"  ")


def on_one_line(body: bytes) -> bytes:
    """Return JSON without an end of a line: arguments of a call may have been sampled with some."""
    if b"\n" in body or b"\r" in body:
        body = body.translate(_SPACES)
    if _SEPARATORS in body or _NEXT_LINE in body:
        for end, escaped in _ESCAPED.items():
            body = body.replace(end, escaped)
    return body


def event(body: bytes, kind: str = "") -> bytes:
    """Return an event with this JSON, and a name of its own if it has a `kind`."""
    if not kind:
        return b"data: %b\n\n" % on_one_line(body)
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), on_one_line(body))
