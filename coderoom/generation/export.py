"""Writes a solution to a folder: a module, its tests and a report in Markdown."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Final

from coderoom._util.files import refusing
from coderoom._util.text import counted, encodable, visible
from coderoom.blocks import fence
from coderoom.errors import RequestError
from coderoom.generation.languages import MARK, Language
from coderoom.generation.languages.named import language_named
from coderoom.generation.languages.python import imports_in
from coderoom.generation.languages.python.pytest_file import is_plain
from coderoom.generation.solution import FunctionReport, Solution
from coderoom.judge import FunctionTest, Verdict, show
from coderoom.outcome import Outcome

_SPECIAL = re.compile(r"[\\`*_\[\]|~$#!@]")
_LONGEST = 1_000
_MOST_SURVIVORS = 20
_LONGEST_BLOCK = 20_000
_COLUMNS = ("Function", "Tests passed", "Attempts", "Time of tests", "Slowest", "Peak memory", "Stop reason")


def report_markdown(solution: Solution) -> str:
    """A report on a solution, as Markdown.

    Text from models and users is escaped: none of it can become a heading, a table, a fence or HTML.
    """
    parts = [f"# {verdict(solution)}", "## Instruction", _block(solution.instruction)]
    if solution.cached_for:
        parts += ["## The instruction that was given, which is only similar", _block(solution.cached_for)]
    # Failing tests have a section of their own.
    failed = {f"{each.function}: {each.test}: {each.why}" for each in solution.test_results if not each.passed}
    parts += _lines("## What is missing", [_inline(line) for line in solution.missing if line not in failed])
    parts += _table(solution.functions)
    for report in solution.functions:
        lines = []
        for each in report.attempts:
            what = f"{each.passed} passed, {each.failed} failed" if not each.problems else "not run"
            of_branch = f", branch {_inline(each.branch)}" if each.branch else ""
            lines.append(f"Attempt {each.number} ({_inline(each.approach)}{of_branch}): {what}")
            if each.reason:
                lines[-1] += f"\n  - why: {_inline(each.reason)}"
            lines[-1] += "".join(f"\n  - note: {_inline(note)}" for note in each.notes)
            lines[-1] += "".join(f"\n  - problem: {_inline(problem)}" for problem in each.problems)
        parts += _lines(f"### Attempts at {_inline(report.function)}", lines)
    measured = [(one.function, one.strength) for one in solution.functions if one.strength is not None]
    words = [_inline(f"{name}: {strength.in_words(_MOST_SURVIVORS)}") for name, strength in measured]
    parts += _lines("## Strength of the tests", words)
    parts += ["## Changed tests"] if solution.test_changes else []
    for change in solution.test_changes:
        parts += [
            f"### {_inline(change.function)}: {_inline(change.test)}",
            f"Changed by {_inline(change.by)}, because: {_inline(change.reason)}",
        ]
        for word, test in (("Before", change.before), ("After", change.after)):
            absent = "There was none." if word == "Before" else "It was removed."
            parts += [f"{word}:", _block(test.model_dump_json(indent=2), "json")] if test else [f"{word}: {absent}"]
    findings = [
        f"{_inline(report.function)}: {_inline(str(each))}" for report in solution.functions for each in report.findings
    ]
    parts += _lines("## Security findings", findings)
    failing = [part for each in solution.test_results if not each.passed for part in _failure(solution, each)]
    parts += ["## Failing tests", *failing] if failing else []
    parts += _lines("## Warnings", [_inline(each) for each in solution.warnings])
    parts += _lines("## About", _about(solution))
    return "\n\n".join(parts) + "\n"


def verdict(solution: Solution) -> str:
    """The result in one line, computed from the results of the tests."""
    passed, count = sum(each.passed for each in solution.test_results), len(solution.test_results)
    expected = max(count, sum(map(len, solution.tests.values())))
    word = "test" if expected == 1 else "tests"
    if not expected:
        return "There are no tests, so nothing is known to work."
    if passed < expected:
        return f"{passed} of {expected} {word} passed."
    if solution.all_tests_passed:
        return f"All {expected} {word} passed." if expected > 1 else "The only test passed."
    if any(report.only_by_changed_tests for report in solution.functions):
        return f"{passed} of {expected} {word} passed, but only because tests were changed."
    return f"{passed} of {expected} {word} passed, but something is missing."


def in_seconds(seconds: float) -> str:
    """A duration in the unit that fits it."""
    if seconds < 0.0005:
        return "under 1 ms" if seconds > 0 else "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def in_bytes(count: int | None) -> str:
    """A size in the unit that fits it."""
    if count is None:
        return "not known"
    size = float(count)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1023.95:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _inline(text: str) -> str:
    """Untrusted text within a line or a table cell, with Markdown and HTML escaped."""
    text = visible(encodable(" ".join(text.split())))
    text = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
    text = _SPECIAL.sub(r"\\\g<0>", escape(text, quote=False))
    return f"\\{text}" if text[:1] in ("-", "+", "=") else text


def _block(text: str, language: str = "text") -> str:
    """Untrusted text as a code block."""
    text = visible(encodable(text)).strip("\n")
    return fence(text if len(text) <= _LONGEST_BLOCK else text[:_LONGEST_BLOCK] + "\n...", language)


def _lines(title: str, lines: Iterable[str]) -> list[str]:
    listed = [f"- {line}" for line in lines]
    return [title, "\n".join(listed)] if listed else []


def _table(reports: Sequence[FunctionReport]) -> list[str]:
    if not reports:
        return []
    rows = [_COLUMNS, tuple("---" for _ in _COLUMNS)]
    for each in reports:
        ended = each.stop_reason.value.replace("_", " ")
        tests = f"{each.tests_passed}/{each.tests}"
        times = in_seconds(each.seconds), in_seconds(each.slowest)
        rows.append((_inline(each.function), tests, str(len(each.attempts)), *times, in_bytes(each.peak_memory), ended))
    return ["## Functions", "\n".join(f"| {' | '.join(row)} |" for row in rows)]


def _failure(solution: Solution, result: Verdict) -> list[str]:
    cases = solution.tests.get(result.function, ())
    test = next((each for each in cases if each.name == result.test), None)
    lines = [f"Why: {_inline(result.why)}"]
    if test is not None:
        lines += [
            f"Call: {_inline(f'{result.function}({_named(test.inputs)})')}",
            f"Expected: {_inline(_expected(test))}",
        ]
    if result.outcome is not Outcome.REJECTED:  # It was not run.
        actual = show(result.actual_output) if result.outcome is Outcome.OK else "nothing"
        if error := result.error.strip():
            actual = error.splitlines()[-1]
        lines.append(f"Actual: {_inline(actual)}")
        after = result.arguments_after
        lines += [f"Arguments after: {_inline(_named(after))}"] if after is not None else []
        lines.append(f"Outcome: {result.outcome.value}, after {in_seconds(result.duration)}")
    parts = _lines(f"### {_inline(result.function)}: {_inline(result.test)}", lines)
    parts += ["Traceback:", _block(result.error)] if result.error else []
    return [*parts, "Printed:", _block(result.stdout)] if result.stdout else parts


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={show(data)}" for name, data in values.items())


def _expected(test: FunctionTest) -> str:
    if test.expects == "error":
        more = f" with {test.error_message!r} in its message" if test.error_message else ""
        return f"{test.expected_error}{more}"
    return f"{test.property}" if test.expects == "property" else show(test.expected_output)


def _about(solution: Solution) -> list[str]:
    usage = solution.usage
    tokens = f"{usage.total_tokens:,} tokens ({usage.prompt_tokens:,} prompt, {usage.completion_tokens:,} completion)"
    used = [f"{counted(usage.requests, 'request')}, {tokens}"] if usage.requests else []
    used += [f"{usage.replayed:,} replies were reused from an earlier call"] if usage.replayed else []
    source = "The code is new."
    if solution.tests_only:
        source = "The code existed before. A test that fails shows a fault of the code or of the test."
    if solution.cached:
        source = "The code comes from the cache; its tests were run again."
    seconds = solution.max_seconds
    budget = "without a time budget" if seconds is None else f"of a time budget of {in_seconds(seconds)}"
    return [
        source,
        f"Language: {_inline(solution.language)}. Model: {_inline(solution.model) or 'unknown'}.",
        f"Stop reason: {solution.stop_reason.value.replace('_', ' ')}, after {in_seconds(solution.duration)} {budget}.",
        f"Usage: {'; '.join(used) or 'no reply of a model'}.",
        *([f"SHA-256 of the original tests: {_inline(solution.tests_hash)}."] if solution.tests_hash else []),
    ]


_MOST_WORDS = 3
_FILLERS = frozenset(
    str.split(
        "a all an and as by can create for from function functions implement in it make of or please program that the "
        "them this to which with write"
    )
)
_HEAD = 200
# Modules of pytest, common third-party modules, and modules of older standard libraries.
_HIDING = str.split(
    "_pytest asynchat asyncore colorama conftest coderoom distutils exceptiongroup hypothesis imp iniconfig numpy "
    "packaging pandas pip pkg_resources pluggy py pygments pytest setup setuptools smtpd test tests tomli"
)
_LIBRARY = frozenset(name.lower() for name in sys.stdlib_module_names).union(_HIDING)


@dataclass(frozen=True)
class WrittenFiles:
    """The files of a solution.

    Attributes:
        folder: The folder that they are in.
        module: The functions; `None` if there is no code.
        tests: Their tests; `None` without tests or code.
        report: The report in Markdown.
        data: The solution as JSON.
        support: Further files that the tests need.
    """

    folder: Path
    module: Path | None
    tests: Path | None
    report: Path
    data: Path
    support: tuple[Path, ...] = ()

    @property
    def paths(self) -> list[Path]:
        """The files that were written."""
        files = (self.module, *self.support, self.tests, self.report, self.data)
        return [path for path in files if path is not None]


_PROBE_BYTES: Final = 64 * 1024


def check_folder(
    folder: str | Path, name: str | None = None, language: str | Language = "python", *, tests_only: bool = False
) -> None:
    """Check early whether a solution can be written to a folder.

    Args:
        folder: The folder.
        name: The name of the module, if known.
        language: The language of the functions or its name.
        tests_only: Whether only tests will be written, for a module of that name that exists already.

    Raises:
        RequestError: A problem was found.
    """
    language = language_named(language)
    names = ["report.md", "report.json"]
    if name is not None:
        names.append(language.tests_file(name))
        if not tests_only:
            _check_name(name, set(), language)
            names.append(f"{name}{language.suffix}")
    root = Path(folder)
    with refusing(f"The solution cannot be written to {str(root)!r}"):
        if root.exists() and not root.is_dir():
            raise RequestError(f"The solution cannot be written to {str(root)!r}: it is not a folder.")
        for each in names:
            _check_replaceable(root / each)
        there = next(each for each in (root.absolute(), *root.absolute().parents) if each.exists())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(bytes(_PROBE_BYTES))


def write_solution(
    solution: Solution,
    folder: str | Path,
    *,
    name: str | None = None,
    language: Language | None = None,
    module: str | Path | None = None,
) -> WrittenFiles:
    """Write a solution into a folder: the module, its tests, `report.md` and `report.json`.

    Files of an earlier solution are replaced atomically.

    Args:
        solution: The solution.
        folder: The folder; it is created if necessary.
        name: The name of the module; `None`: from the first words of the instruction if valid, else `solution`.
        language: The language of the functions; `None`: that of the solution.
        module: For tests of code that exists (`Solution.tests_only`), the file of its module, which the tests import;
            `None`: a module `name` in the same folder.

    Raises:
        RequestError: The name is invalid, a file not written by CodeRoom exists, or the folder is not writable.
    """
    language = language if language is not None else language_named(solution.language)
    root = Path(folder)
    existing = Path(module) if module is not None and solution.tests_only else None
    needed = {each for source in solution.implementations.values() for each in imports_in(source)}
    if existing is not None:
        stem = existing.stem
    elif name is not None:
        _check_name(name, needed, language)
        stem = name
    else:
        words = re.findall(r"[a-z][a-z0-9]*", solution.instruction.split("\n")[0].lower())
        stem = "_".join([word for word in words if word not in _FILLERS][:_MOST_WORDS])
        stem = "solution" if _name_problem(stem, needed, language) else stem
    place = os.path.relpath(existing.resolve().parent, root.resolve()) if existing is not None else "."
    texts = _texts(solution, stem, language, place)
    with refusing(f"The solution cannot be written to {str(root)!r}"):
        root.mkdir(parents=True, exist_ok=True)
        for each in texts:
            _check_replaceable(root / each)
        _write_all(root, texts)
    paths = {name: root / name for name in texts}
    return WrittenFiles(
        folder=root,
        module=paths.pop(f"{stem}{language.suffix}", None),
        tests=paths.pop(language.tests_file(stem), None),
        report=paths.pop("report.md"),
        data=paths.pop("report.json"),
        support=tuple(paths.values()),
    )


def _check_name(name: str, needed: set[str], language: Language) -> None:
    problem = _name_problem(name, needed, language)
    if problem is not None:
        raise RequestError(f"{problem.removesuffix('; take another name')}. Choose another name, such as 'solution'.")


def _name_problem(name: str, needed: set[str], language: Language) -> str | None:
    problem = language.name_problem(name)
    if problem is not None or len(name) > 100:
        return problem or f"{name!r:.80} is too long for the name of a module"
    if name.lower() in _LIBRARY | {each.lower() for each in needed}:
        return f"A module {name!r} would hide another module of this name"
    if name.lower().startswith("test_") or name.lower().endswith("_test"):
        return f"A module {name!r} would be collected as tests by pytest"
    return None


def _texts(solution: Solution, module: str, language: Language, place: str) -> dict[str, str]:
    """The contents of the files by name. The module is in the folder `place`, seen from the tests."""
    texts = {}
    code = {name: source for name, source in solution.implementations.items() if source}
    if code and not solution.tests_only:
        texts[f"{module}{language.suffix}"] = language.marked(language.write_module(code, solution.instruction))
    tests = {name: cases for name, cases in solution.tests.items() if cases}
    if solution.tests_only:  # Those that fail are in the report.
        passed = {(each.function, each.test) for each in solution.test_results if each.passed}
        kept = {name: tuple(each for each in cases if (name, each.name) in passed) for name, cases in tests.items()}
        tests = {name: cases for name, cases in kept.items() if cases}
    if code and tests:
        path, file = module if place == "." else f"{place}/{module}", language.tests_file(module)
        note = ""
        if file.endswith(".py"):
            tests, note = _of_plain_data(tests, solution.test_results)
        files = language.write_tests(tests, path, solution.function_specs)
        texts |= files | {file: language.marked(files[file]) + note}
    texts["report.md"] = f"<!-- {MARK}. -->\n\n{report_markdown(solution)}"
    about: dict[str, Any] = {"about": MARK, "verdict": verdict(solution), "missing": solution.missing}
    about.update(files=sorted(texts), total_tokens=solution.usage.total_tokens)
    data = {"coderoom": about, **solution.model_dump(mode="json")}
    texts["report.json"] = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    return texts


def _of_plain_data(
    tests: Mapping[str, tuple[FunctionTest, ...]], results: Sequence[Verdict]
) -> tuple[dict[str, tuple[FunctionTest, ...]], str]:
    """The tests that a pytest file can have, and a comment about the others: properties of objects, which it cannot."""
    objects = {(each.function, each.test) for each in results if not is_plain(each.actual_output)}
    kept = {
        function: tuple(each for each in cases if each.property is None or (function, each.name) not in objects)
        for function, cases in tests.items()
    }
    fewer = sum(map(len, tests.values())) - sum(map(len, kept.values()))
    note = f"\n\n# {counted(fewer, 'more test')} of objects or arrays that the code returns: CodeRoom judges them.\n"
    return kept, note if fewer else ""


def _check_replaceable(path: Path) -> None:
    """Check that a path is free or has a file written by CodeRoom."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    head = b""
    if stat.S_ISREG(facts.st_mode):
        with path.open("rb") as file:
            head = file.read(_HEAD)
    if MARK.encode() not in head:
        raise RequestError(
            f"{str(path)!r} exists and was not written by CodeRoom: move it away, or choose another folder or name. "
            "Nothing was written."
        )


def _write_all(root: Path, texts: Mapping[str, str]) -> None:
    """Write all files under temporary names, then rename them, so that a failure leaves the old files."""
    fresh = {name: root / f".{uuid.uuid4().hex}.new" for name in texts}
    try:
        for name, text in texts.items():
            with fresh[name].open("x", encoding="utf-8", newline="\n") as file:
                file.write(encodable(text))
                file.flush()
                os.fsync(file.fileno())
        for name, path in fresh.items():
            path.replace(root / name)
    finally:
        for path in fresh.values():
            with contextlib.suppress(OSError):
                path.unlink()
