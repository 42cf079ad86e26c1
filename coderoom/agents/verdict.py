"""A reviewer's structured decision."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, field_validator, model_validator

__all__ = ["ReviewIssue", "ReviewVerdict", "Severity"]

Severity = Literal["error", "warning", "note"]

_SEVERITIES: dict[str, Severity] = {
    **dict.fromkeys(("error", "blocker", "blocking", "critical", "fatal", "high", "major", "severe"), "error"),
    **dict.fromkeys(("note", "info", "informational", "low", "nit", "style", "suggestion", "trivial"), "note"),
}

# Every field is required, as strict structured output wants it; what a model without it leaves out is filled in
# before the check.


class ReviewIssue(BaseModel):
    """One thing that a reviewer found."""

    severity: Severity
    """How bad it is: an `error` makes the result wrong, a `warning` may, a `note` does not."""
    line: int | None
    """The line of the code, counted from 1, or `None` if it is about no one line."""
    message: str
    """What is wrong, and what to do about it."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {"message": data}
        return {"severity": "warning", "line": None, **data} if isinstance(data, dict) else data

    @field_validator("severity", mode="before")
    @classmethod
    def _known_severity(cls, value: Any) -> Severity:
        return _SEVERITIES.get(str(value).strip().lower(), "warning")

    @field_validator("line", mode="before")
    @classmethod
    def _whole_line(cls, value: Any) -> int | None:
        try:
            return int(value)
        except (TypeError, ValueError, OverflowError):
            return None

    def __str__(self) -> str:
        place = "" if self.line is None else f", line {self.line}"
        return f"{self.severity}{place}: {self.message}"


class ReviewVerdict(BaseModel):
    """A reviewer's decision about the last attempt."""

    approved: bool
    """Whether the work is done as it was asked for."""
    issues: list[ReviewIssue]
    """What was found, the worst first."""
    summary: str
    """The verdict in a sentence or two."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {**data, "issues": data.get("issues") or [], "summary": data.get("summary") or ""}

    def refuse(self, why: str) -> ReviewVerdict:
        """The same verdict, not approved, with `why` as its first issue."""
        issue = ReviewIssue(severity="error", line=None, message=why)
        return ReviewVerdict(approved=False, issues=[issue, *self.issues], summary=self.summary)

    def __str__(self) -> str:
        lines = ["Approved." if self.approved else "Not approved."]
        if self.summary.strip():
            lines[0] += f" {self.summary.strip()}"
        return "\n".join(lines + [f"- {issue}" for issue in self.issues])
