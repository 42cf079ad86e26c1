"""Runs tests against code and decides, outside of the process that ran the code. Knows no model.

    tests = freeze({"add": [FunctionTest(name="small", inputs={"a": 1, "b": 2}, expected_output=3)]})
    async with make_sandbox() as sandbox:
        verdicts = await Judge(sandbox).run({"add": source}, tests)

Expected results never enter the process of the code: values and exceptions leave it as data and are compared here.
"""

from __future__ import annotations

from coderoom.judge.apart import TestCode, TestFiles, tests_in
from coderoom.judge.cases import FrozenTests, FunctionTest, Step, TestChange, changed, freeze
from coderoom.judge.harness import Harness, Job, PythonHarness
from coderoom.judge.judge import Judge, Tests, make_sandbox
from coderoom.judge.programs import Programs, ProgramTest
from coderoom.judge.repository import Repository
from coderoom.judge.session import Verdict
from coderoom.judge.strength import Strength, Survivor
from coderoom.judge.values import Comparison, Record, TaggedError, compare, decode, encode, show

__all__ = [
    "Comparison",
    "FrozenTests",
    "FunctionTest",
    "Harness",
    "Job",
    "Judge",
    "ProgramTest",
    "Programs",
    "PythonHarness",
    "Record",
    "Repository",
    "Step",
    "Strength",
    "Survivor",
    "TaggedError",
    "TestChange",
    "TestCode",
    "TestFiles",
    "Tests",
    "Verdict",
    "changed",
    "compare",
    "decode",
    "encode",
    "freeze",
    "make_sandbox",
    "show",
    "tests_in",
]
