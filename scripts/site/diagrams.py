"""Pictures for Mermaid diagrams, drawn without a browser and without a network."""

import re

import mermaidx

_SCALE = 0.55
"""Size of a diagram's words, relative to Mermaid's: still readable, with little to scroll."""
_WIDTH = re.compile(r'width="100%"(?=[^>]*max-width: ([\d.]+)px)')


def svg(source: str) -> str:
    """Return the picture for a Mermaid source. It takes about a second."""
    return sized(mermaidx.render(source).svg())


def sized(picture: str) -> str:
    """Return an SVG with a fixed width, so that words have the same size in all diagrams."""
    return _WIDTH.sub(lambda match: f'width="{float(match[1]) * _SCALE:.0f}"', picture, count=1)
