"""Colours and labels of the parts of a worker's time, for pictures and for the page."""

from seamlessflow.scheduler.state.accounts import waits
from seamlessflow.scheduler.state.accounts.bars import Part, waiting_for
from seamlessflow.scheduler.state.accounts.device_time import (
    DECODING,
    LOADING,
    RECOMPUTING,
    SWITCHING,
    TRAINING,
    UNDER_FILLED,
    WAITING,
)

COLOURS: dict[Part, str] = {
    DECODING: "#2f6fce",
    TRAINING: "#f28e2b",
    RECOMPUTING: "#8e6bbf",
    SWITCHING: "#9aa0a6",
    LOADING: "#f6cf65",
    UNDER_FILLED: "#bcd5f3",
    waiting_for(waits.TURNS): "#e8eaed",
    waiting_for(waits.GROUPS): "#f3ead0",
    waiting_for(waits.BATCH): "#f7dfc8",
    waiting_for(waits.GANG): "#cfe6cd",
    waiting_for(waits.ROLE): "#f6d5dd",
    waiting_for(waits.REPORT): "#f4f5f6",
    WAITING: "#e8eaed",
}
"""From the bottom of a bar to its top; waits are pale."""
LABELS: dict[Part, str] = {
    DECODING: "decoding",
    TRAINING: "training",
    RECOMPUTING: "recomputing",
    SWITCHING: "switching role",
    LOADING: "loading or writing weights",
    UNDER_FILLED: "under-filled",
    waiting_for(waits.TURNS): "waits for turns",
    waiting_for(waits.GROUPS): "waits for weights",
    waiting_for(waits.BATCH): "waits for a batch",
    waiting_for(waits.GANG): "waits for its gang",
    waiting_for(waits.ROLE): "waits for a role",
    waiting_for(waits.REPORT): "no report of its rollout",
    WAITING: "waiting",
}

IDLE, SHARES = "all but decoding and training", "a colour is as high as its share of the time"
"""Legends of what pictures and page show: what counts as idle, and how bars are drawn."""
