from __future__ import annotations

import shutil
from typing import Any

import pytest

from coderoom.generation import AICodeGenerator, JavaScriptLanguage
from coderoom.sandbox import Sandbox

from .scripted import ScriptedModel, function, test

DOUBLE = """\
import { strict } from 'node:assert'

const LIMIT = 100
const SEEN = new Map();

class Big extends RangeError {}

function checked(x) {
  if (x > LIMIT) throw new Big(`${x} of ${LIMIT}`)
  return x
}

/** Twice. */
export function double(x) { return 2 * checked(x) }
"""
FOUR = "function four(x) {\n  return double(double(x))\n}\n"


def without(source: str) -> tuple[str, list[str]]:
    return JavaScriptLanguage().without_repeats(source, {"double": DOUBLE})


@pytest.mark.parametrize(
    "repeat",
    [
        "function double(x) { return x + x }",
        "export async function double(x) {\n  return x + x // }\n}",
        "export default function double({ y }, x = '}') { return /}/.test(y) }",
        "function* double(x) { yield `${x}}` }",
        "const double = (x) => x + x;",
        "export const double = async x => {\n  return x + x\n}",
        "let double = function (x) { return x }",
        "class double { static x = 1 }",
        "function double(x) { return 7 }\nfunction double(x) { return 8 }",
        "function double(x) { return 7 };",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_function_that_is_there_is_not_defined_again(repeat: str, end: str) -> None:
    for source in (f"import 'fs'\n\n{repeat}\n\n{FOUR}", f"import 'fs'\n\n{FOUR}\n{repeat}\n"):
        text, names = without(source.replace("\n", end))
        assert text.replace("import 'fs'", "").strip(" ;\n") == FOUR.strip()
        assert names == ["double"]


def test_what_stands_beside_it_goes_with_it() -> None:
    source = DOUBLE.replace("> LIMIT", ">= LIMIT").replace("100", "50") + FOUR
    text, names = without(source)
    assert "".join(text.split()) == "".join(f"import {{ strict }} from 'node:assert' /** Twice. */ {FOUR}".split())
    assert set(names) == {"LIMIT", "SEEN", "Big", "checked", "double"}


def test_what_is_the_same_is_used_by_both() -> None:
    helper = "function half(x) { return x / TWO }\nconst TWO = 2;\n"
    known = {"double": f"{helper}function double(x) {{ return half(4 * x) }}"}
    own = "function four(x) { return half(8 * x) / TWO * 2 }\n"
    text, names = JavaScriptLanguage().without_repeats(helper + own, known)
    assert text == own
    assert set(names) == {"half", "TWO"}


@pytest.mark.parametrize(
    ("known", "own", "use"),
    [
        ("const K = 1;", "const K = 2;", "K"),
        ("const S = new Map();", "const S = new Map();", "S"),  # Each would find in it what the other has put there.
        ("let k = 1;", "let k = 1;", "k++"),
        ("function h(x) { return x }", "function h(x) { return -x }", "h(x)"),
        ("class H { static x = [] }", "class H { static x = [] }", "H.x"),
    ],
)
def test_what_differs_or_can_be_changed_stays_to_be_refused(known: str, own: str, use: str) -> None:
    source = f"{own}\nfunction four(x) {{ return {use} }}"
    assert JavaScriptLanguage().without_repeats(source, {"double": f"{known}\nfunction double(x) {{}}"}) == (source, [])


@pytest.mark.parametrize(
    "source",
    [
        FOUR,
        "function four(x) { function double(x) {} return double(x) }",
        "import { sqrt as double } from 'm'\n" + FOUR,
        "const { double } = { double: 7 };\n" + FOUR,
        "const double = 7;\n" + FOUR,
        "const double = x => x, other = 7;\n" + FOUR,
        "if (true) { var double = (x) => 7 }\n" + FOUR,
        "function double(",
        "}}}} function double(x) {}",
        "let async\nfunction four(x) {}",
        "",
    ],
)
def test_nothing_else_is_touched(source: str) -> None:
    assert without(source) == (source, [])


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")
@pytest.mark.parametrize("own", [DOUBLE.replace("2 *", "3 *"), "const double = (x) => {\n  return 7\n}\n"])
@pytest.mark.slow
async def test_an_answer_that_repeats_a_function_costs_no_further_question(node_sandbox: Sandbox, own: str) -> None:
    def cases(times: int) -> list[dict[str, Any]]:
        return [test(f"{n}", times * n, x=n) for n in (0, 1, 3)]

    fenced = {"double": f"```javascript\n{DOUBLE}\n```", "four": f"```javascript\n{own}\n{FOUR}\n```"}
    model = ScriptedModel(
        [function("four", needs=["double"]), function("double")], {"double": cases(2), "four": cases(4)}, fenced
    )
    generator = AICodeGenerator(model, sandbox=node_sandbox, cache=False, language="javascript")
    solution = await generator.generate_solution("Four times a number.")
    assert solution.all_tests_passed, solution.missing
    assert model.count("repair", "four") == 0
    assert "its own 'double' was removed; the tested function is used" in solution.functions[1].attempts[0].notes
