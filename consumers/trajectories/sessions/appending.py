"""Arrays and version spans of a turn, appended to as its output arrives. Pure."""

from dataclasses import replace

from schemas.records import TokenTensor, VersionSpan


def appended(known: TokenTensor | None, more: TokenTensor) -> TokenTensor:
    """Return one array over all tokens so far, or only `more` if rows between them are missing."""
    if known is None or known.data is None or more.data is None:
        return more
    if known.to_token != more.from_token or known.shape[1:] != more.shape[1:]:
        return more
    shape = (more.to_token - known.from_token, *known.shape[1:])
    return replace(more, from_token=known.from_token, shape=shape, data=known.data + more.data)


def add_spans(spans: list[VersionSpan], more: tuple[VersionSpan, ...]) -> None:
    """Append to `spans` those of `more` that are of another version than the one before."""
    for span in more:
        if not spans or not _same_version(spans[-1], span):
            spans.append(span)


def _same_version(one: VersionSpan, two: VersionSpan) -> bool:
    return (
        one.version_min == two.version_min
        and one.version_max == two.version_max
        and one.kv == two.kv
    )
