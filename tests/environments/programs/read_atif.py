"""Documents of ATIF, read by Harbor's own models: a line on each. Runs in Harbor's Python."""

import json
import sys
from pathlib import Path

from harbor.models.trajectories import Trajectory


def main():
    for file in sys.argv[1:]:
        for line in Path(file).read_text().splitlines():
            made = Trajectory.model_validate_json(line)
            calls = [call for step in made.steps for call in step.tool_calls or ()]
            metrics = [step.metrics for step in made.steps if step.metrics]
            shown = {
                "session": made.session_id,
                "messages": [step.message for step in made.steps],
                "calls": [[call.function_name, call.arguments] for call in calls],
                "results": sum(len(s.observation.results) for s in made.steps if s.observation),
                "ids": [each.completion_token_ids for each in metrics],
            }
            print(json.dumps(shown))


main()
