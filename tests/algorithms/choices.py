"""Whole runs whose rules choose: tasks, samples, opponents, stored sessions, ends of turns.

A part of the table in `table.py`.
"""

from collections.abc import Mapping

from benchmarks.learning.methods import POLICY
from tests.algorithms.run_settings import FEW, MINE, WholeRun, drawn_by, stopped_by

_OWN = "examples.methods"
_UNLIKELY = {"below": -0.5, "window": 2}

CHOICES: Mapping[str, WholeRun] = {
    "vade": WholeRun({}, more=drawn_by("vade", by="level", memory=0.9)),
    "target": WholeRun({}, more=drawn_by("target", rate=0.3, own_memory=0.5)),
    "greso": WholeRun(
        {
            "reuse": {"groups": 1, "choice": "newest"},
            "loss": {"surrogate": "cispo", "correction": "tis"},
        },
        more=drawn_by("greso", candidates=64),
    ),
    "srpo": WholeRun({}, more=drawn_by("srpo", return_after=2, passes=0.5)),
    "trace": WholeRun(
        {}, more=drawn_by("trace", {"name": "by_success", "least": 3, "exempt": 0.5}, most=6)
    ),
    "own_sampler": WholeRun(
        {},
        more=drawn_by(
            f"{_OWN}.sampler:half_solved",
            {"name": f"{_OWN}.terms:more_for_unsolved"},
            {f"{_OWN}.sampler:half_solved": {"new": 0.5}},
        ),
    ),
    "own_prediction": WholeRun(
        {}, more=drawn_by("trace", predict=f"{_OWN}.prediction:own_results_first")
    ),
    "forks_live": WholeRun(
        {"layout": "tree"},
        more={
            "agents": {"forks": "playback"},
            "pacing": {
                "forks_live": 0.3,
                "forks_predict": f"{_OWN}.fork_prediction:by_progress",
                "functions": {f"{_OWN}.fork_prediction:by_progress": {"weight": 0.3}},
            },
        },
        metrics=("forked_groups", "forked_other_share"),
    ),
    "forks_middle": WholeRun(
        {"advantage": "grpo_batch"},
        more={"agents": {"forks": "middle"}, "pacing": {"forks_live": 0.25}},
        metrics=("forked_groups", "forked_other_share"),
    ),
    "explore": WholeRun(
        {},
        more={
            "workers": [
                {"id": "w0", "tags": ["rollout", "train", "exact"]},
                {"id": "w1", "tags": ["rollout", "cheap"]},
            ],
            **drawn_by("explore", samples=8, best=2, worst=2, under_way=3),
        },
        metrics=("sampled_again", "equal_texts"),
    ),
    "league": WholeRun(
        {},
        more={
            "policies": {"rival": {"frozen": {"of": POLICY, "every": 1}}},
            "pacing": {"terms": {"name": "league", "weight": "capped", "groups": 3}},
            "agents": {"callable": "examples.league.agent:run", "modules": {"second": "rival"}},
            "workers": [
                {"id": "w0", "tags": ["rollout", "train"]},
                {"id": "w1", "tags": ["rollout"], "policy": "rival"},
            ],
        },
        # Both players are asked the same, and say eight tokens.
        symptoms=("have equal rewards", "were dropped", "ended at a limit", "rendered anew"),
    ),
    "roles": WholeRun(
        {},
        more={
            "agents": {
                "callable": "tests.algorithms.two_roles:run",
                "roles": {"first": POLICY, "second": POLICY},
            }
        },
    ),
    "rescue": WholeRun(
        {"replay": {"name": "rescue", "take": "random", "passes": 0.5, "pools": {"own": {}}}},
        more={"pacing": {"tasks": FEW}},
        metrics=("stored_replaced", "stored_share", "masked/replaced"),
    ),
    "mix": WholeRun(
        {
            "replay": {
                "name": "mix",
                "foreign": 2,
                "pools": {"own": {"uses": 2, "max_staleness": 3, "keep": 9}},
            }
        },
        metrics=("stored_groups", "stored_share"),
    ),
    "own_mixer": WholeRun(
        {
            "replay": {"name": f"{_OWN}.mixer:sometimes", "pools": {"own": {"uses": 3}}},
            "functions": {f"{_OWN}.mixer:sometimes": {"share": 0.75}},
        },
        more={"pacing": {"tasks": FEW}},
        metrics=("stored_share",),
    ),
    "confidence": stopped_by("confidence", {"floor": 6.8, "tail": 6.0, "spike": 2.5}, record_top=5),
    "repetition": stopped_by(
        "repetition", {"period": 2, "times": 2, "ends": "session"}, reward=-0.5
    ),
    "budget": stopped_by("budget", {"tokens": 4}),
    "own_control": stopped_by(f"{_OWN}.control:Unlikely", _UNLIKELY),
    "deleted": WholeRun(
        {"replay": {"name": f"{MINE}mixer:sometimes", "pools": {"own": {"uses": 3}}}},
        more={
            "pacing": {
                "tasks": FEW,
                "sampler": {"name": f"{MINE}sampler:half_solved"},
                "terms": {"name": f"{MINE}terms:more_for_unsolved"},
            },
            "rollout": {"control": {"name": f"{MINE}control:Unlikely", "settings": _UNLIKELY}},
        },
        metrics=("stored_share",),
        symptoms=("ended at a limit", "were exempt", "have equal rewards", "are not trained"),
        deleted=("mixer", "sampler", "terms", "control"),
    ),
}
