"""Functions from specs, tests first: all of it that needs no model.

    specs = read_specs(data)                          # checked one by one and together
    for layer in order(specs): ...                    # functions that can be written at the same time
    tests = freeze(read_tests(more_data, specs))      # a hash over all that they say
    problems = check_implementation(source, spec)     # before anything runs
    findings = scan(source)
    results = await TestRunner(sandbox).run({"f": source}, tests)

What a test expects never goes where the functions are: values and exceptions come out as data, and are compared here.
"""

from __future__ import annotations

from coderoom.errors import GenerationError
from coderoom.generation._check import CodeProblem, check_implementation, check_setup, names_defined
from coderoom.generation._compare import Comparison, compare
from coderoom.generation._frozen import FrozenTests, TestChange, changed, freeze
from coderoom.generation._language import Job, Language
from coderoom.generation._python import PythonLanguage
from coderoom.generation._results import TestResult
from coderoom.generation._run import TestRunner
from coderoom.generation._scan import Level, SecurityFinding, scan
from coderoom.generation._specs import FunctionInput, FunctionOutput, FunctionSpec, order, read_specs
from coderoom.generation._tests import FunctionTest, read_tests
from coderoom.generation._values import Record, TaggedError, decode, encode, show

__all__ = [
    "CodeProblem",
    "Comparison",
    "FrozenTests",
    "FunctionInput",
    "FunctionOutput",
    "FunctionSpec",
    "FunctionTest",
    "GenerationError",
    "Job",
    "Language",
    "Level",
    "PythonLanguage",
    "Record",
    "SecurityFinding",
    "TaggedError",
    "TestChange",
    "TestResult",
    "TestRunner",
    "changed",
    "check_implementation",
    "check_setup",
    "compare",
    "decode",
    "encode",
    "freeze",
    "names_defined",
    "order",
    "read_specs",
    "read_tests",
    "scan",
    "show",
]
