"""What the page on the sandbox says of names and numbers is so."""

from __future__ import annotations

import dataclasses
import re
from typing import get_args, get_type_hints

import pytest
from pydantic import ValidationError

from coderoom.sandbox import ExecutionResult, Limits, Sandbox
from tests.support.commands import ROOT

PAGE = (ROOT / "docs" / "sandbox.md").read_text()
UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "": 1}
TABLE = PAGE.partition("<!-- options: coderoom.sandbox:Limits -->")[2].partition("<!-- end")[0]
ROWS = dict(re.findall(r"^\| `(\w+)` \| ([^|]+ \| [^|]+ \| [^|]+) \|$", TABLE, re.MULTILINE))


def number(text: str) -> float | None:
    if text in ("none", "above 0"):
        return None
    if text == "a day":
        return 86_400
    value, _, unit = text.replace(",", "").partition(" ")
    return float(value) * UNITS[unit]


def test_every_limit_is_in_the_table_with_its_default() -> None:
    assert {name: number(row.split(" | ")[0]) for name, row in ROWS.items()} == Limits().model_dump()


def test_from_and_to_are_as_they_are_said() -> None:
    for name in Limits.model_fields:
        low, _, high = ROWS[name].split(" | ")[1].partition(", ")
        for bound, beyond in ((number(low), -1), (number(high) if high else None, 1)):
            if bound is not None:
                Limits.model_validate({name: bound})
                with pytest.raises(ValidationError):
                    Limits.model_validate({name: bound + beyond})


def test_every_limit_that_can_be_met_is_in_the_table() -> None:
    limits = {name for part in get_args(get_type_hints(ExecutionResult)["limit"]) for name in get_args(part)}
    assert {*re.findall(r"\(`(\w+)`\)", TABLE)} == limits


def test_every_part_of_a_result_is_named() -> None:
    section = PAGE.partition("## What comes back")[2].partition("## What the code sees")[0]
    assert {field.name for field in dataclasses.fields(ExecutionResult) if f"`{field.name}`" not in section} == set()


async def test_the_modules_of_monty_are_counted() -> None:
    async with Sandbox(engine="monty") as sandbox:
        error = (await sandbox.run("import numpy")).error
    assert error is not None
    names = error.message.partition("only these modules: ")[2].partition(".")[0].split(", ")
    assert f"{len(names)} modules of the standard library" in PAGE
