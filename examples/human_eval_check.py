"""Raises if the function in an answer is wrong. `code` is the answer's code; the others are fields of HumanEval."""

# ruff: noqa: F821 (the names are there when a batch runs this)
exec(code)
exec(test)
check(globals()[entry_point])
