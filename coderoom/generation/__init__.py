"""Turns an instruction into tested functions, tests first.

    solution = await AICodeGenerator(model).generate_solution("Write numbers as Roman numerals.")
    write_solution(solution, "roman")                 # a module, its tests, a report

What it is made of can be used without a model:

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
from coderoom.generation.checks import check_implementation, check_setup, names_defined
from coderoom.generation.clients import AutoGenModel, OpenAIModel
from coderoom.generation.events import (
    CacheHit,
    CodeRefused,
    CodeWritten,
    FunctionFinished,
    GenerationEvent,
    ModelAsked,
    SpecsWritten,
    TestChanged,
    TestsFrozen,
    TestsRun,
    TestsWritten,
    Warned,
)
from coderoom.generation.export import WrittenFiles, check_folder, write_solution
from coderoom.generation.frozen_tests import FrozenTests, TestChange, changed, freeze
from coderoom.generation.generator import AICodeGenerator
from coderoom.generation.languages.base import CodeProblem, Job, Language, Level, SecurityFinding
from coderoom.generation.languages.javascript.language import JavaScriptLanguage
from coderoom.generation.languages.python.language import PythonLanguage
from coderoom.generation.languages.registry import make_sandbox
from coderoom.generation.model import Message, Model, Reply
from coderoom.generation.report import report_markdown
from coderoom.generation.security_scan import scan
from coderoom.generation.solution import Approach, Attempt, FunctionReport, Solution, StopReason, Usage
from coderoom.generation.specs import FunctionInput, FunctionOutput, FunctionSpec, order, read_specs
from coderoom.generation.store.cache import CacheStats, SolutionCache, cache_key
from coderoom.generation.store.journal import Journal
from coderoom.generation.testing.compare import Comparison, compare
from coderoom.generation.testing.results import TestResult
from coderoom.generation.testing.runner import TestRunner
from coderoom.generation.testing.values import Record, TaggedError, decode, encode, show
from coderoom.generation.tests import FunctionTest
from coderoom.generation.tests_data import read_tests

__all__ = [
    "AICodeGenerator",
    "Approach",
    "Attempt",
    "AutoGenModel",
    "CacheHit",
    "CacheStats",
    "CodeProblem",
    "CodeRefused",
    "CodeWritten",
    "Comparison",
    "FrozenTests",
    "FunctionFinished",
    "FunctionInput",
    "FunctionOutput",
    "FunctionReport",
    "FunctionSpec",
    "FunctionTest",
    "GenerationError",
    "GenerationEvent",
    "JavaScriptLanguage",
    "Job",
    "Journal",
    "Language",
    "Level",
    "Message",
    "Model",
    "ModelAsked",
    "OpenAIModel",
    "PythonLanguage",
    "Record",
    "Reply",
    "SecurityFinding",
    "Solution",
    "SolutionCache",
    "SpecsWritten",
    "StopReason",
    "TaggedError",
    "TestChange",
    "TestChanged",
    "TestResult",
    "TestRunner",
    "TestsFrozen",
    "TestsRun",
    "TestsWritten",
    "Usage",
    "Warned",
    "WrittenFiles",
    "cache_key",
    "changed",
    "check_folder",
    "check_implementation",
    "check_setup",
    "compare",
    "decode",
    "encode",
    "freeze",
    "make_sandbox",
    "names_defined",
    "order",
    "read_specs",
    "read_tests",
    "report_markdown",
    "scan",
    "show",
    "write_solution",
]
