"""Budgets are in `coderoom.models`; this is their earlier place."""

from coderoom.models.budgets import Budget, Spending, limiting, make_budget

__all__ = ["Budget", "Spending", "limiting", "make_budget"]
