"""Turns an instruction into tested functions, tests first.

    solution = await AICodeGenerator(model).generate_solution("Write numbers as Roman numerals.")
    write_solution(solution, "roman")                 # a module, its tests, a report

Its parts can be used without a model:

    specs = read_specs(data)                          # checked, each alone and all together
    for layer in order(specs): ...                    # functions that can be written concurrently
    tests = freeze(read_tests(more_data, specs))      # with a hash of their content
    problems = check_implementation(source, spec)     # before anything runs
    findings = scan(source)
    results = await TestRunner(sandbox).run({"f": source}, tests)

Expected results never enter the process of the functions: values and exceptions leave it as data and are compared here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import coderoom._util.full  # noqa: F401
from coderoom._util.lazy import lazy

if TYPE_CHECKING:
    from coderoom.errors import GenerationError
    from coderoom.generation.cache import CacheEntry, CacheStats, Journal, SolutionCache, cache_key
    from coderoom.generation.export import WrittenFiles, check_folder, report_markdown, write_solution
    from coderoom.generation.generator import AICodeGenerator
    from coderoom.generation.languages import CodeProblem, Language, Level, SecurityFinding
    from coderoom.generation.languages.go import GoLanguage
    from coderoom.generation.languages.javascript import JavaScriptLanguage
    from coderoom.generation.languages.named import make_sandbox
    from coderoom.generation.languages.python import PythonLanguage
    from coderoom.generation.languages.python.check import check_implementation, names_defined, scan
    from coderoom.generation.languages.shell import ShellLanguage
    from coderoom.generation.languages.typescript import TypeScriptLanguage
    from coderoom.generation.model_client import AutoGenModel, OpenAIModel
    from coderoom.generation.models import Embeddings, Message, Model, OpenAIEmbeddings, Reply
    from coderoom.generation.options import GeneratorArguments, GeneratorOptions
    from coderoom.generation.solution import (
        Approach,
        Attempt,
        BranchesJudged,
        BranchReport,
        CacheHit,
        CodeRefused,
        CodeWritten,
        FunctionFinished,
        FunctionReport,
        GenerationEvent,
        ModelAsked,
        Solution,
        SpecsWritten,
        StopReason,
        StrengthMeasured,
        TestChanged,
        TestsFrozen,
        TestsRun,
        TestsWritten,
        Usage,
        Warned,
    )
    from coderoom.generation.specs import FunctionInput, FunctionOutput, FunctionSpec, order, read_specs, read_tests
    from coderoom.judge import (
        Comparison,
        FrozenTests,
        FunctionTest,
        Job,
        Record,
        Step,
        Strength,
        TaggedError,
        TestChange,
        changed,
        compare,
        decode,
        encode,
        freeze,
        show,
    )
    from coderoom.judge import Judge as TestRunner
    from coderoom.judge import Verdict as TestResult

__all__ = [
    "AICodeGenerator",
    "Approach",
    "Attempt",
    "AutoGenModel",
    "BranchReport",
    "BranchesJudged",
    "CacheEntry",
    "CacheHit",
    "CacheStats",
    "CodeProblem",
    "CodeRefused",
    "CodeWritten",
    "Comparison",
    "Embeddings",
    "FrozenTests",
    "FunctionFinished",
    "FunctionInput",
    "FunctionOutput",
    "FunctionReport",
    "FunctionSpec",
    "FunctionTest",
    "GenerationError",
    "GenerationEvent",
    "GeneratorArguments",
    "GeneratorOptions",
    "GoLanguage",
    "JavaScriptLanguage",
    "Job",
    "Journal",
    "Language",
    "Level",
    "Message",
    "Model",
    "ModelAsked",
    "OpenAIEmbeddings",
    "OpenAIModel",
    "PythonLanguage",
    "Record",
    "Reply",
    "SecurityFinding",
    "ShellLanguage",
    "Solution",
    "SolutionCache",
    "SpecsWritten",
    "Step",
    "StopReason",
    "Strength",
    "StrengthMeasured",
    "TaggedError",
    "TestChange",
    "TestChanged",
    "TestResult",
    "TestRunner",
    "TestsFrozen",
    "TestsRun",
    "TestsWritten",
    "TypeScriptLanguage",
    "Usage",
    "Warned",
    "WrittenFiles",
    "cache_key",
    "changed",
    "check_folder",
    "check_implementation",
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

# Lazy, because languages and the cache are used without a model.
__getattr__, __dir__ = lazy(
    __name__,
    {
        "coderoom.errors": "GenerationError",
        "coderoom.generation.cache": "CacheEntry CacheStats Journal SolutionCache cache_key",
        "coderoom.generation.model_client": "AutoGenModel OpenAIModel",
        "coderoom.generation.export": "WrittenFiles check_folder report_markdown write_solution",
        "coderoom.generation.generator": "AICodeGenerator",
        "coderoom.generation.languages": "CodeProblem Language Level SecurityFinding",
        "coderoom.generation.languages.go": "GoLanguage",
        "coderoom.generation.languages.javascript": "JavaScriptLanguage",
        "coderoom.generation.languages.named": "make_sandbox",
        "coderoom.generation.languages.python": "PythonLanguage",
        "coderoom.generation.languages.python.check": "check_implementation names_defined scan",
        "coderoom.generation.languages.shell": "ShellLanguage",
        "coderoom.generation.languages.typescript": "TypeScriptLanguage",
        "coderoom.generation.models": "Embeddings Message Model OpenAIEmbeddings Reply",
        "coderoom.generation.options": "GeneratorArguments GeneratorOptions",
        "coderoom.generation.solution": "Approach Attempt BranchReport BranchesJudged CacheHit CodeRefused "
        "CodeWritten FunctionFinished FunctionReport GenerationEvent ModelAsked Solution SpecsWritten StopReason "
        "StrengthMeasured TestChanged TestsFrozen TestsRun TestsWritten Usage Warned",
        "coderoom.generation.specs": "FunctionInput FunctionOutput FunctionSpec order read_specs read_tests",
        "coderoom.judge": "Comparison FrozenTests FunctionTest Job Record Step TaggedError TestChange changed "
        "compare decode encode freeze show Strength TestRunner=Judge TestResult=Verdict",
    },
)
