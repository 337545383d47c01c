"""Documents of ATIF, read by Harbor's own models: a line on each. Runs in Harbor's Python."""

import json
import sys
from pathlib import Path

from harbor.models.trajectories import Trajectory


def main():
    for file in sys.argv[1:]:
        for line in Path(file).read_text().split("\n"):
            made = Trajectory.model_validate_json(line)
            steps = made.to_json_dict()["steps"]
            calls = [call for step in steps for call in step.get("tool_calls", ())]
            observed = [step["observation"]["results"] for step in steps if "observation" in step]
            shown = {
                "session": made.session_id,
                "messages": [step["message"] for step in steps],
                "calls": [[call["function_name"], call["arguments"]] for call in calls],
                "results": sum(map(len, observed)),
                "ids": [s["metrics"]["completion_token_ids"] for s in steps if "metrics" in s],
            }
            print(json.dumps(shown))


main()
