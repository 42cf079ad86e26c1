"""How many tests of packages on PyPI run apart from their code, with the same result as in one process.

    python benchmarks/judge_packages.py schema humanize

Each package is downloaded as a source distribution by pip. The verdicts of `coderoom judge` are compared with those of
pytest on the same files in one process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from coderoom.judge.files import read_code, read_tests

PACKAGES = {
    "addict": ("test_addict.py", "addict"),
    "atomicwrites": ("tests", "atomicwrites"),
    "blinker": ("tests", "src/blinker"),
    "boltons": ("tests", "boltons"),
    "cachetools": ("tests", "src/cachetools"),
    "configobj": ("src/tests", "src/configobj src/validate"),
    "deepmerge": ("deepmerge/tests", "deepmerge"),
    "dotmap": ("dotmap/test.py", "dotmap"),
    "everett": ("tests", "src/everett"),
    "first": ("test_first.py", "first.py"),
    "frozendict": ("test", "src/frozendict"),
    "funcy": ("tests", "funcy"),
    "glom": ("glom/test", "glom"),
    "humanize": ("tests", "src/humanize"),
    "idna": ("tests", "idna"),
    "inflection": ("test_inflection.py", "inflection"),
    "iniconfig": ("testing", "src/iniconfig"),
    "intervaltree": ("test", "intervaltree"),
    "itsdangerous": ("tests", "src/itsdangerous"),
    "json5": ("tests", "json5"),
    "jsonlines": ("tests", "jsonlines"),
    "jsonpointer": ("tests.py", "jsonpointer.py"),
    "markupsafe": ("tests", "src/markupsafe"),
    "mistune": ("tests", "src/mistune"),
    "more-itertools": ("tests", "more_itertools"),
    "munch": ("tests", "munch"),
    "nameparser": ("tests", "nameparser"),
    "natsort": ("tests", "natsort"),
    "ordered-set": ("test", "ordered_set"),
    "parse": ("tests", "parse"),
    "pathspec": ("tests", "pathspec"),
    "portion": ("tests", "portion"),
    "pyhumps": ("tests", "humps"),
    "python-dotenv": ("tests", "src/dotenv"),
    "python-slugify": ("tests", "slugify"),
    "pytimeparse": ("pytimeparse/tests/testtimeparse.py", "pytimeparse"),
    "roman": ("src/tests.py", "src/roman"),
    "schema": ("test_schema.py", "schema"),
    "semver": ("tests", "src/semver"),
    "simpleeval": ("tests", "simpleeval.py"),
    "sqlparse": ("tests", "sqlparse"),
    "tabulate": ("test", "tabulate"),
    "text-unidecode": ("test_unidecode.py", "src/text_unidecode"),
    "texttable": ("tests.py", "texttable.py"),
    "tinydb": ("tests", "tinydb"),
    "titlecase": ("titlecase/tests.py", "titlecase"),
    "toolz": ("toolz/tests", "toolz"),
    "voluptuous": ("voluptuous/tests/tests.py", "voluptuous"),
    "wcwidth": ("tests", "wcwidth"),
    "webcolors": ("tests", "src/webcolors"),
    "xmltodict": ("tests", "xmltodict.py"),
}
"""Where the tests and the code of each package are: one path of tests, and some of code."""

PLUGIN = """
import json
found = {}
def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        if found.get(report.nodeid, "passed") == "passed":
            found[report.nodeid] = report.outcome
def pytest_sessionfinish():
    with open("found.json", "w") as file:
        json.dump(found, file)
"""


def main() -> None:
    """Print a line for each package, and what could not be separated or is wrong."""
    for name in sys.argv[1:] or PACKAGES:
        with tempfile.TemporaryDirectory() as folder:
            root = download(name, Path(folder))
            where, *places = (root / each for each in " ".join(PACKAGES[name]).split())
            expected = in_one_process(where, places, Path(folder, "together"))
            command = [sys.executable, "-m", "coderoom", "judge", str(where), "--json"]
            command += [part for each in places for part in ("--candidate", str(each))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        verdicts = {each["test"]: each for each in json.loads(done.stdout)["tests"]}
        kinds = {test: kind_of(verdicts.get(test), outcome) for test, outcome in expected.items()}
        count = Counter(kinds.values())
        print(f"{name}: {len(expected)} tests, {count['same'] / max(len(expected), 1):.1%} the same, {dict(count)}")
        for test, kind in kinds.items():
            if kind != "same":
                verdict = verdicts.get(test, {})
                print(f"  {kind}: {test}: {verdict.get('cannot_separate', '')} {verdict.get('why', '')[-200:]!r}")


def download(name: str, folder: Path) -> Path:
    """Download a package and return its folder."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-binary", ":all:", "--no-deps", "-d", folder, name]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as file:
        file.extractall(folder, filter="data")
    return next(each for each in folder.iterdir() if each.is_dir())


def in_one_process(tests: Path, code: Sequence[Path], folder: Path) -> dict[str, str]:
    """The outcome of each test, as pytest says it in one process with the code."""
    given = read_tests(tests, code)
    for name, text in {**read_code(code, given.files), **given.files, "record_outcomes.py": PLUGIN}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "record_outcomes", "-p", "no:cacheprovider", "--rootdir=."]
    command += ["--continue-on-collection-errors", *given.run]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    found: dict[str, str] = json.loads((folder / "found.json").read_text())
    return found


def kind_of(verdict: dict[str, str] | None, outcome: str) -> str:
    """Whether a verdict is the `same` as an outcome, `cannot_separate`, `missing` or `wrong`."""
    if verdict is None:
        return "missing"
    if verdict["cannot_separate"]:
        return "cannot_separate"
    said = "skipped" if verdict["skipped"] else "passed" if verdict["passed"] else "failed"
    return "same" if said == outcome else "wrong"


if __name__ == "__main__":
    main()
