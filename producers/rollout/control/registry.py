"""Rules by name, as a worker uses them: the release's, and the user's own that its settings name.

A turn brings its rule's name with it. A user's own rule is used only if the worker's settings name
it too, from a file with the same hash. So no record makes a worker import a module.
"""

from collections.abc import Collection
from typing import Any

import orjson

from seamlessflow.infra.user_functions import is_user_function, user_function
from seamlessflow.infra.worker.control_rule import ControlSection
from seamlessflow.producers.rollout.control.contract import TurnRule
from seamlessflow.producers.rollout.control.controlled import ControlledTurn, ThinkingMarks
from seamlessflow.producers.rollout.control.rules import VERSION, rule_named
from seamlessflow.schemas.records import GenerateTurn, TurnControl


class UsedRules:
    """A worker's rules. Raises `FunctionUnusable` if the user's own function is no rule."""

    def __init__(self, section: ControlSection | None = None) -> None:
        self._users: tuple[str, bytes, str] | None = None
        """The user's rule: name, settings and hash."""
        self._rules: dict[tuple[str, bytes], TurnRule] = {}
        name = None if section is None else section.name
        if section is None or name is None or not is_user_function(name):
            return
        function = user_function(name)
        key = name, section.settings_json
        self._users = (*key, function.sha256)
        self._rules[key] = function.call(**section.settings)

    def controlled(
        self, request: GenerateTurn, marks: ThinkingMarks | None, ends: Collection[int]
    ) -> ControlledTurn | None:
        """Return the turn under the rule that it names; None if it names none."""
        control = request.control
        if control is None:
            return None
        rule, error = self._rule(control)
        if rule is not None and control.name == "budget" and marks is None:
            error = "no single token begins and ends the thinking of this model"
        return ControlledTurn(request, None if error else rule, marks, ends, error)

    def _rule(self, control: TurnControl) -> tuple[TurnRule | None, str]:
        key = control.name, control.settings
        if control.sha256 or is_user_function(control.name):
            if self._users == (*key, control.sha256):
                return self._rules[key], ""
            return None, f"{control.name} has another file or other settings on this worker"
        if control.version != VERSION:
            return None, f"version {control.version} of the rules, this worker has {VERSION}"
        if key not in self._rules:
            settings: dict[str, Any] = orjson.loads(control.settings)
            try:
                self._rules[key] = rule_named(control.name, settings)
            except (KeyError, ValueError) as error:
                return None, f"{type(error).__name__}: {error}"
        return self._rules[key], ""
