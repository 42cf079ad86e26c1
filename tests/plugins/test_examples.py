"""The examples of a wall, an engine and a language are found by name and keep the promises of the public suites."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest

from coderoom.generation import FunctionSpec, FunctionTest
from coderoom.generation.languages.named import LANGUAGES, language_named
from coderoom.sandbox import Sandbox
from coderoom.sandbox.registry import ENGINES, WALLS
from coderoom.testing import EngineConformance, LanguageConformance, WallConformance
from tests.support.commands import ROOT

FOLDER = ROOT / "examples" / "plugins"


class Installed:
    """The tests of a class find the examples as if they were installed."""

    patch: pytest.MonkeyPatch
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def setup_class(cls) -> None:
        cls.patch = pytest.MonkeyPatch()
        cls.folder = tempfile.TemporaryDirectory()
        project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
        info = Path(cls.folder.name, "coderoom_example_plugins-1.0.dist-info")
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: coderoom-example-plugins\nVersion: 1.0\n")
        groups = project["entry-points"].items()
        lines = [f"[{group}]\n" + "\n".join(map(" = ".join, points.items())) for group, points in groups]
        (info / "entry_points.txt").write_text("\n".join(lines))
        for folder in (FOLDER, cls.folder.name):
            cls.patch.syspath_prepend(folder)
        super().setup_class()  # type: ignore[misc]

    @classmethod
    def teardown_class(cls) -> None:
        super().teardown_class()  # type: ignore[misc]
        cls.patch.undo()
        cls.folder.cleanup()
        for plugins in (WALLS, ENGINES, LANGUAGES):
            for name in ("nice", "sqlite", "perl"):
                plugins._loaded.pop(name, None)


@pytest.mark.allwalls
class TestNice(Installed, WallConformance):
    arguments = {"wall": "nice"}
    may_be_missing = True

    async def test_it_gives_way(self, sandbox: Sandbox) -> None:
        assert (await sandbox.run("import os\nos.nice(0)")).value == 19


class TestSQLite(Installed, EngineConformance):
    arguments = {"engine": "sqlite"}
    language = "sql"
    sets = "drop table if exists x; create table x as select {} as v"
    reads = "select v from x"
    computes = "select 6 * 7"
    malformed = "selec 1"
    fails = "create table y (v); select * from none_such"
    endless = "with recursive n (i) as (select 1 union all select i + 1 from n) select max(i) from n"
    greedy = (
        "create table big (b); with recursive n (i) as (select 1 union all select i + 1 from n) "
        "insert into big select randomblob(1000000) from n"
    )

    async def test_rows_are_lists(self, sandbox: Sandbox) -> None:
        result = await self.run(sandbox, "select 1, 'a;b' union all select 2, null")
        assert result.value == [[1, "a;b"], [2, None]]

    async def test_files_are_out_of_reach(self, sandbox: Sandbox, tmp_path: Path) -> None:
        for code in ("attach '{}' as other", "vacuum into '{}'", "pragma temp_store_directory = '{}'"):
            result = await self.run(sandbox, code.format(tmp_path / "database"))
            assert re.search("not authorized|authorization denied", str(result.error)), code
        assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(shutil.which("perl") is None, reason="perl is not installed here")
@pytest.mark.slow
class TestPerl(Installed, LanguageConformance):
    timeout = 2
    same = "sub f { my ($x) = @_; return $x }"
    adds = "sub f { my ($x) = @_; return [$x, $x + 1] }"
    raises = 'sub f { my ($x) = @_; die "no\\n" }'
    error = "Died"
    twice = "sub g { my ($x) = @_; return [f($x), f($x)] }"
    waits = "sub f { my ($x) = @_; while (1) {} }"
    prints = "sub f { print 'x' x 50_000; return undef }"
    alone = [
        "our @seen;\nsub f { my ($x) = @_; push @seen, $x; return scalar @seen }",
        "sub f { my ($x) = @_; open(my $file, '>', $x); close $file; my @found = glob('*'); return scalar @found }",
    ]
    failing = {
        "g": "sub g { my ($x) = @_;\n  return 1 / $x;\n}",
        "f": "sub f { my ($x) = @_;\n  my $y = g($x);\n  return $y;\n}",
    }
    traceback = ["Died: Illegal division by zero at g line 2."]
    unloadable = {"f": "BEGIN { exit 1 }", "h": "sub h {", "i": "BEGIN { kill 'KILL', $$ }"}
    one = "sub {name} {{ return 1 }}"

    @classmethod
    def setup_class(cls) -> None:
        super().setup_class()
        cls.language = language_named("perl")

    def test_its_files_run(self, tmp_path: Path) -> None:
        tests = [
            FunctionTest(name="it's", inputs={"x": [1, "ä"]}, expected_output=[1, "ä"]),
            FunctionTest.model_validate({"name": "no", "inputs": {"x": 0}, "expected_error": "Died"}),
        ]
        code = {"f": self.same, "g": self.raises.replace("sub f", "sub g")}
        spec = {"name": "f", "purpose": "x", "inputs": [{"name": "x", "type": "int"}], "outputs": {"type": "int"}}
        specs = [FunctionSpec.model_validate({**spec, "name": name}) for name in code]
        files = self.language.write_tests({"f": tests[:1], "g": tests[1:]}, "own", specs)
        for name, text in {**files, "own.pl": self.language.write_module(code, "Two\nlines.")}.items():
            (tmp_path / name).write_text(text)
        done = subprocess.run(["perl", "own.t"], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.count("\nok") + done.stdout.startswith("ok")) == (0, 3), done
