"""`RuleApproval`: patterns decide clear cases."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, Literal

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse
from autogen_core import Component
from pydantic import BaseModel, ConfigDict, Field, field_validator

from coderoom._util.components import StrictConfig
from coderoom.approval.base import Approval, no
from coderoom.blocks import Block, extract_code_blocks, normalize_language

Action = Literal["allow", "deny", "ask"]

_STRICTNESS: Final[dict[Action, int]] = {"allow": 0, "ask": 1, "deny": 2}


class Rule(BaseModel):
    r"""What to do with a block of code that matches a pattern.

    Attributes:
        pattern: A regular expression that is searched in the block's code; `^` and `$` match at every line. A rule that
            allows should match the whole block: begin it with `\A` and end it with `\Z`.
        action: `"allow"` and `"deny"` decide; `"ask"` leaves the decision to the next approval.
        language: The rule applies only to blocks in this language. To a block of unknown language, rules that deny or
            ask apply, and rules that allow do not.
        reason: The reason that people and models see.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pattern: str = Field(min_length=1)
    action: Action
    language: str | None = None
    reason: str | None = None

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern, re.MULTILINE)
        except re.error as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        return pattern


class RuleApprovalConfig(StrictConfig):
    """Config of `RuleApproval`."""

    rules: list[Rule]
    default: Action = "ask"


class RuleApproval(Approval, Component[RuleApprovalConfig]):
    """Decides by ordered patterns; for each block the first matching rule counts.

    Either all blocks of a request run or none, so the strictest action wins: deny before ask before allow. Text outside
    of blocks is judged as a block of unknown language.

    Patterns are not security: the same code can be written in many ways. Use them to spare a person the clear cases,
    and leave security to the sandbox. A pattern with endless backtracking blocks the whole program.

    Args:
        rules: The rules, in order.
        default: The action for a block that no rule matches. `"ask"` means no opinion: in a `ChainApproval` the next
            approval decides; alone it is a no.

    Raises:
        ValueError: A rule or the default is not valid.
    """

    component_config_schema = RuleApprovalConfig
    component_provider_override = "coderoom.approval.RuleApproval"

    def __init__(self, rules: Sequence[Rule], default: Action = "ask") -> None:
        config = RuleApprovalConfig(rules=list(rules), default=default)
        self._rules, self._default = config.rules, config.default

    async def decide(self, request: ApprovalRequest) -> ApprovalResponse | None:
        """Judge each block, and take the strictest action."""
        judged = [self._judge(code, language) for code, language in _parts(request.code)]
        action, reason = max(judged, key=lambda verdict: _STRICTNESS[verdict[0]])
        if action == "ask":
            return None
        return no(reason) if action == "deny" else ApprovalResponse(approved=True, reason=reason)

    def _judge(self, code: str, language: str) -> tuple[Action, str]:
        for rule in self._rules:
            if _is_for(rule, language) and re.search(rule.pattern, code, re.MULTILINE):
                return rule.action, rule.reason or f"The rule {rule.pattern!r} says {rule.action}."
        return self._default, f"No rule matches, and the default is to {self._default}."


def _is_for(rule: Rule, language: str) -> bool:
    if rule.language is None:
        return True
    if not language:
        return rule.action != "allow"
    return normalize_language(rule.language) == language


def _parts(text: str) -> list[tuple[str, str]]:
    """Pieces of code, each with its language."""
    blocks = extract_code_blocks(text)
    parts = [(block.code, block.language) for block in blocks]
    outside = _outside(text, blocks)
    return [*parts, (outside, "")] if outside or not parts else parts


def _outside(text: str, blocks: Sequence[Block]) -> str:
    """The text outside of blocks: allowing a block must not allow anything else."""
    lines = re.split(r"\r\n?|\n", text)
    accounted: set[int] = set()
    for block in blocks:
        code = block.code.split("\n") if block.code else []
        there = lines[block.line : block.line + len(code)]
        has_fence = lines[block.line - 1].lstrip().startswith(("```", "~~~"))
        if has_fence and [line.strip() for line in there] == [line.strip() for line in code]:
            accounted.update(range(block.line - 1, block.line + len(code)))
    rest = (line for number, line in enumerate(lines) if number not in accounted)
    return "\n".join(line for line in rest if line.strip(" \t`~"))
