"""Pictures of Mermaid diagrams, drawn without a browser and without a network."""

import re

import mermaidx

_SCALE = 0.55
"""Size of the words of a diagram, by those of Mermaid: still readable, and little to scroll."""
_WIDTH = re.compile(r'width="100%"(?=[^>]*max-width: ([\d.]+)px)')


def svg(source: str) -> str:
    """Return the picture of a Mermaid source. It takes about a second."""
    return sized(mermaidx.render(source).svg())


def sized(picture: str) -> str:
    """Return an SVG with a width of its own, so that all diagrams have words of one size."""
    return _WIDTH.sub(lambda match: f'width="{float(match[1]) * _SCALE:.0f}"', picture, count=1)
