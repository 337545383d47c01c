"""Image of very many workers: a row of pixels for each, with the mean colour of each column's time.

Called by `chart.py` where rows are too low for bars.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from seamlessflow.lab.timeline.looks import COLOURS
from seamlessflow.scheduler.state.accounts.bars import Bar
from seamlessflow.scheduler.state.accounts.device_time import Window

_RGB = {
    name: np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    for name, colour in COLOURS.items()
}


def rows_image(
    workers: Sequence[str], bars: Mapping[str, Sequence[Bar]], window: Window, columns: int
) -> NDArray[np.float64]:
    """Return colours of 0 to 1 in shape (workers, columns, 3); white where a worker is not there.

    `bars` are the bars of each worker in the window.
    """
    image = np.ones((len(workers), columns, 3))
    for row, worker in enumerate(workers):
        colour, spent = _row(bars.get(worker, ()), window, columns)
        present = spent > 0
        image[row, present] = colour[present] / spent[present, None]
    return image


def _row(
    bars: Sequence[Bar], window: Window, columns: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sum of colour by time, and the time, of each column in columns' widths."""
    colour, spent = np.zeros((columns, 3)), np.zeros(columns)
    scale = columns / (window[1] - window[0])
    for bar in bars:
        begin, end = ((at_ms - window[0]) * scale for at_ms in (bar.start_ms, bar.end_ms))
        first, last = int(begin), min(columns, int(end) + 1)
        covered = np.ones(last - first)
        covered[0] -= begin - first
        covered[-1] -= max(0.0, last - end)
        spent[first:last] += covered
        mean = sum((share * _RGB[name] for name, share in bar.shares.items()), np.zeros(3))
        colour[first:last] += covered[:, None] * mean
    return colour, spent
