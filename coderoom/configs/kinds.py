"""Which kind of component belongs under which name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass

__all__ = ["MODEL", "TEAM", "Kind", "all_kinds", "kind_for"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of component.

    Attributes:
        phrase: What to call it in a sentence.
        bases: The classes it is one of, as `module:name`.
        component_type: The `component_type` it has, where classes do not say it.
    """

    phrase: str
    bases: tuple[str, ...] = ()
    component_type: str | None = None

    def has(self, component_class: type) -> bool:
        """Say whether a class is of this kind."""
        if self.component_type is not None:
            return getattr(component_class, "component_type", None) == self.component_type
        bases = []
        for base in self.bases:
            module, _, name = base.partition(":")
            bases.append(getattr(importlib.import_module(module), name))
        return issubclass(component_class, tuple(bases))


MODEL = Kind("a model client", ("autogen_core.models:ChatCompletionClient",))
TEAM = Kind("a team", ("autogen_agentchat.base:Team",))
_TERMINATION = Kind("a termination condition", ("autogen_agentchat.base:TerminationCondition",))
_APPROVAL = Kind("an approval", component_type="approval")

_BY_FIELD = {
    "model_client": MODEL,
    "model_context": Kind("a model context", ("autogen_core.model_context:ChatCompletionContext",)),
    "code_executor": Kind("a code executor", ("autogen_core.code_executor:CodeExecutor",)),
    "termination_condition": _TERMINATION,
    "conditions": _TERMINATION,
    "participants": Kind("an agent or a team", ("autogen_agentchat.base:ChatAgent", "autogen_agentchat.base:Team")),
    "team": TEAM,
    "agent": Kind("an agent", ("autogen_agentchat.base:ChatAgent",)),
    "workbench": Kind("a workbench", ("autogen_core.tools:Workbench",)),
    "tools": Kind("a tool", ("autogen_core.tools:BaseTool",)),
    "approval": _APPROVAL,
    "approvals": _APPROVAL,
}


def kind_for(field: str | None) -> Kind | None:
    """Give the kind that a field of this name holds by convention, if there is one."""
    return None if field is None else _BY_FIELD.get(field)


def all_kinds() -> list[Kind]:
    """List every kind that a file can hold."""
    return list(dict.fromkeys([TEAM, *_BY_FIELD.values()]))
