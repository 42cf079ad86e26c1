from __future__ import annotations

import pytest

from coderoom.generation import check_implementation, names_defined, scan

from .examples import spec

GOOD = '''
"""Text."""
from __future__ import annotations
import math
try:
    import numpy
except ImportError:
    numpy = None
if math.pi > 3:
    LIMIT: int = 3
CACHE = {}

class Helper:
    pass

def helper(a):
    for each in a:
        print(each)

@staticmethod
def f(x, y=1, *, z=2):
    return x

if __name__ == "__main__":
    print(f(1))
'''


def said(source: str, **more: object) -> str:
    return "\n".join(map(str, check_implementation(source, spec("f", ["x"], ["dep"]), **more)))  # type: ignore[arg-type]


class TestImplementation:
    @pytest.mark.parametrize(
        "source",
        [GOOD, "async def f(x): ...", "def f(x, /): ...", "def f(*, x): ...", "def f(x, *args, **kwargs): ..."],
    )
    def test_good_code(self, source: str) -> None:
        assert said(source) == ""

    @pytest.mark.parametrize(
        ("source", "text"),
        [
            ("def f(x:", "line 1: this is not valid Python"),
            ("x = '\0'", "this is not valid Python"),
            ("(" * 5_000, "this is not valid Python"),
            ("#" * 300_000, "300,000 characters"),
            ("def g(x): ...", "does not define the function 'f'"),
            ("f = max", "does not define the function 'f'"),
            ("class A:\n    def f(x): ...", "does not define"),
            ("def f(x): ...\ndef f(x): ...", "line 2: it defines the function 'f' twice"),
            ("def f(x): ...\nf = print", "is defined as the function and as something else"),
            ("def f(): ...", "the parameter 'x' of f(x) is missing"),
            ("def f(*args): ...", "the parameter 'x' of f(x) is missing"),
            ("def f(x, y): ...", "'y' is not a parameter of f(x)"),
            ("def f(x): ...\ndef dep(): ...", "line 2: 'dep' is another function"),
            ("def f(x): ...\nfrom dep import dep", "line 2: 'dep' is another function"),
            ("def f(x): ...\nfrom . import a", "relative imports"),
        ],
    )
    def test_what_is_wrong_is_said(self, source: str, text: str) -> None:
        found = said(source)
        assert all(part in found for part in text.split(" .* ")), found

    def test_the_order_of_parameters_counts(self) -> None:
        (found,) = check_implementation("def f(y, x): ...", spec("f", ["x", "y"]))
        assert "in the order of f(x, y)" in str(found)

    def test_names_of_other_functions_are_taken(self) -> None:
        taken = dict.fromkeys(names_defined("import os\ndef _helper(): ...\nA = 1\nclass B: ...\ndef g(): ..."), "g")
        assert list(taken) == ["_helper", "A", "B", "g"]
        found = said("def f(x): ...\ndef _helper(): ...", taken={**taken, "f": "f"})
        assert found == "line 2: '_helper' is already defined by the code of 'g'; use another name"

    @pytest.mark.parametrize("statement", ["import os", "import os.path", "from os import path", "import os as math"])
    def test_imports_may_be_limited_wherever_they_stand(self, statement: str) -> None:
        assert "line 2: the module 'os" in said(f"def f(x):\n    {statement}", allowed_imports={"math"})
        assert said(f"def f(x):\n    {statement}", allowed_imports={"os"}) == ""

    def test_code_does_not_run(self) -> None:
        check_implementation("import sys\nsys.exit(3)\ndef f(x): ...", spec("f"))


class TestScan:
    def test_findings_have_their_place(self) -> None:
        code = "import subprocess\n\nsubprocess.run('ls', shell=True)\n"
        found = next(each for each in scan(code, severity="low", confidence="high") if each.id == "B602")
        assert (found.id, found.line, found.severity, found.confidence) == ("B602", 3, "low", "high")
        assert str(found).startswith("line 3: B602 (low): ")

    def test_levels(self) -> None:
        code = "import pickle\ndef f(x):\n    assert x\n    return pickle.loads(x)"
        assert [each.id for each in scan(code)] == ["B301"]
        assert [each.id for each in scan(code, severity="low")] == ["B403", "B101", "B301"]
        assert scan(code, severity="high") == []

    def test_code_cannot_say_that_it_is_not_to_be_scanned(self) -> None:
        assert [each.id for each in scan("eval(input())  # nosec")] == ["B307"]

    @pytest.mark.parametrize("code", ["def", "x = '\0'", "x = '\ud800'", ""])
    def test_what_is_no_python_has_no_findings(self, code: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert scan(code) == []
        assert capsys.readouterr() == ("", "")
