# ruff: noqa: E501 (pieces of code, one to a line)
"""Our languages keep the promises of the public suite."""

from __future__ import annotations

import shutil

import pytest

from coderoom.generation import JavaScriptLanguage, PythonLanguage
from coderoom.sandbox import Limits
from coderoom.testing import LanguageConformance


class TestPython(LanguageConformance):
    language = PythonLanguage()
    timeout = 2
    same = "def f(x): return x"
    adds = "def f(x): return [x, x + 1]"
    raises = "def f(x): raise TypeError('no')"
    error = "TypeError"
    twice = "def g(x): return [f(x), f(x)]"
    waits = "def f(x):\n    while True: pass"
    prints = "def f(): print('x' * 50_000)"
    alone = [
        "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)",
        "def f(x, seen=[]):\n    seen.append(x)\n    return len(seen)",
        "import os\ndef f(x):\n    open(f'{x}', 'w').close()\n    return len(os.listdir())",
        "import os, tempfile\ndef f(x):\n    here = tempfile.gettempdir() + '/mine'\n    os.makedirs(here, exist_ok=True)\n"
        "    open(f'{here}/{x}', 'w').close()\n    return len(os.listdir(here))",
        "import math\ndef f(x):\n    math.pi = getattr(math, 'n', 0) + 1\n    math.n = 1\n    return math.pi",
        "import os\ndef f(x):\n    os.environ['N'] = os.environ.get('N', '') + 'x'\n    return len(os.environ['N'])",
    ]
    failing = {"g": "def g(x):\n    return 1 / x\n", "f": "def f(x):\n    y = g(x)\n    return y\n"}
    traceback = [
        "  in f, line 2 of f: y = g(x)",
        "  in g, line 2 of g: return 1 / x",
        "ZeroDivisionError: division by zero",
    ]
    unloadable = {
        "f": "import os\nos._exit(1)",
        "h": "def h(: pass",
        "i": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    }
    one = "def {name}(): return 1"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed here")
@pytest.mark.slow
class TestJavaScript(LanguageConformance):
    arguments = {"limits": Limits(memory_bytes=512 * 1024 * 1024)}
    language = JavaScriptLanguage()
    timeout = 5
    same = "function f(x) { return x }"
    adds = "function f(x) { return [x, x + 1] }"
    raises = "function f(x) { throw new TypeError('no') }"
    error = "TypeError"
    twice = "function g(x) { return [f(x), f(x)] }"
    waits = "function f(x) { while (true); }"
    prints = "function f() { console.log('x'.repeat(50_000)) }"
    alone = [
        "const seen = []\nfunction f(x) { seen.push(x); return seen.length }",
        "import fs from 'fs'\nfunction f(x) { fs.writeFileSync(`${x}`, ''); return fs.readdirSync('.').length }",
        "import fs from 'fs'\nfs.writeFileSync('a', '')\nfunction f(x) { fs.appendFileSync('a', 'x'); return fs.readFileSync('a').length }",
        "import fs from 'fs'\nfunction f(x) { fs.appendFileSync(new URL(import.meta.url).pathname, '\\nthrow 1'); return 1 }",
        "function f(x) { Math.n = (Math.n ?? 0) + 1; return Math.n }",
    ]
    failing = {
        "g": "import fs from 'fs'\nexport function g(x) {\n  throw new TypeError('no')\n}",
        "f": "\nexport const f = (x) => {\n  const y = g(x)\n  return y\n}\n",
    }
    traceback = [
        "  in f, line 3 of f: const y = g(x)",
        "  in g, line 3 of g: throw new TypeError('no')",
        "TypeError: no",
    ]
    unloadable = {"f": "process.exit(1)", "h": "function h( {", "i": "process.kill(process.pid, 'SIGKILL')"}
    one = "function {name}() {{ return 1 }}"
