"""The languages of cells: what compiles and runs each, and the Debian package that it comes with.

The one place that knows them. Used by engines, `coderoom exec`, the judge, servers and `coderoom doctor`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Program(NamedTuple):
    """What runs the cells of a language other than Python.

    Attributes:
        argv: Its command. `{file}` stands for the file with the cell, or with what was built of it; without it, the
            cell is the standard input. `{python}` stands for the sandbox's interpreter.
        suffixes: The suffixes of its files.
        address_space: Whether the limit on memory may bound its address space.
        reading: Its command if it has a standard input of its own; `None`: the same.
        package: The Debian package that has its programs; empty if it comes with every system.
        source: The name of the file that is compiled; empty if nothing is.
        build: The shell command that compiles that file to a file `built`.
        compiler: The program that this needs.
        opening: A text, and what a file without it begins with.
        keeping: Its command in a session, if it keeps a state from cell to cell, with names for descriptors:
            `{state}` has the state, and the next one is written to `{kept}`; or all cells come from `{cells}`.
    """

    argv: tuple[str, ...]
    suffixes: tuple[str, ...]
    address_space: bool = True
    reading: tuple[str, ...] | None = None
    package: str = ""
    source: str = ""
    build: str = ""
    compiler: str = ""
    keeping: tuple[str, ...] | None = None
    opening: tuple[str, str] = ("", "")

    @property
    def needs(self) -> tuple[str, ...]:
        """The programs that have to be installed."""
        own = (self.compiler, self.argv[0]) if self.compiler else (self.argv[0],)
        return tuple(each for each in own if not each.startswith("{"))

    @property
    def install(self) -> str:
        """What installs them."""
        return f"apt-get install {self.package}" if self.package else "https://aka.ms/powershell has it"

    def whole(self, code: str) -> str:
        """The code with what its file has to begin with, on the same lines."""
        mark, text = self.opening
        return code if mark in code else text + code


# It has a path, but cannot be found by its real one. V8 reserves far more address space than it uses.
_NODE: Final = ("node", "--preserve-symlinks-main", "{file}")
_JVM: Final = ("-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=64m", "-XX:CompressedClassSpaceSize=64m", "-Xmx384m")
# A file has the name of its public class. What runs is the class `Main`, or else another one that has a `main`.
_JAVA: Final = rf"""
name=$(sed -nE 's/^(.*[ \t])?public ([a-z]+ )*(class|record|enum|interface) +(\w+).*/\4/p;T;q' Main.java)
[ "${{name:-Main}}" = Main ] || mv Main.java "$name.java"
javac {" ".join(f"-J{each}" for each in _JVM)} -d classes "${{name:-Main}}.java" || exit
found=$(grep -rl '(\[Ljava/lang/String;)V' classes | sort)
[ "$found" ] || {{ echo "error: no class has a method main(String[])"; exit 1; }}
main=$(echo "$found" | grep -E '/Main\.class$' || echo "$found" | head -n 1)
main=${{main#classes/}}
jar -c0fe built "$(echo "${{main%.class}}" | tr / .)" -C classes ."""
# As the program `sqlite3` prints: columns separated by `|`, without their names.
_SQL: Final = r"""
import glob, re, sqlite3, sys
code = open(sys.argv[1], encoding="utf-8").read()
named = re.match(r"\s*--\s*database:\s*(\S.*?)\s*$", code, re.M)
found = [named[1]] if named else sorted(each for kind in ("db", "sqlite", "sqlite3") for each in glob.glob("*." + kind))
if len(found) > 1:
    sys.exit("There are several databases: " + ", ".join(found) + ". A first line `-- database: NAME` chooses one.")
statements, begun, line = [], "", 1
for part in re.split("(?<=[;\n])", code):
    line += begun.count("\n") if not begun.strip() else 0
    begun = begun + part if begun.strip() else part
    if part.endswith(";") and sqlite3.complete_statement(begun):
        statements.append((line, begun))
        line, begun = line + begun.count("\n"), ""
try:
    database = sqlite3.connect(found[0] if found else "database.db", isolation_level=None)
except sqlite3.Error as error:
    sys.exit("Error: %s: %s" % (error, found[0] if found else "database.db"))
for line, statement in [*statements, (line, begun)]:
    try:
        for row in database.execute(statement):
            print(*["" if each is None else str(each) for each in row], sep="|")
    except sqlite3.Error as error:
        sys.stdout.flush()
        sys.exit("Error: line %d: %s" % (line, error))
"""

_PWSH: Final = "& ([ScriptBlock]::Create([IO.File]::ReadAllText('{file}')))"  # `-File` wants a name with a suffix.

# The state is a script: what the shell prints of its options, functions, variables and folder. It is written when the
# shell exits, by the code too; or before, if the code has set a trap of its own.
_SAVE: Final = """\
{ set +eux; } 2>/dev/null
{ shopt -p; declare -f; declare -F; declare -p; printf "cd -- %q\\n" "$PWD"; echo "# all"; } >&{kept} 2>/dev/null
"""
_BASH: Final = f"""\
. /dev/fd/{{state}} >/dev/null 2>&1
[[ . -ef $PWD ]] || cd -P .
trap '{_SAVE}' EXIT
. {{file}}
{{ set -- "$?"; set +eux; }} 2>/dev/null
[[ $(trap -p EXIT) == *'# all'* ]] || {{ {_SAVE} }}
exit "$1"
"""

# Runs each cell as a console does: names can be declared again, and `await` is allowed at the top. So are the imports
# and exports of a module, which are rewritten; the parser is the one that Node's own console uses. As a program, a cell
# has ended when nothing is left to do; only then is the next one read.
_NODE_CELLS: Final = r"""{
const fs = require("fs"), inspector = new (require("inspector").Session)();
const read = size => {
    const data = Buffer.alloc(size);
    for (let at = 0, count; at < size; at += count) {
        count = fs.readSync({cells}, data, at, size - at);
        if (!count) process.reallyExit(0);
    }
    return data;
};
let cell = 0, status = 0, waiting = false;
const fail = (what, code = 1) => {
    status = code;
    const frames = /\n    at Session\.post [\s\S]*|\n    at (async )?globalThis\.__import .*/g;
    process.stderr.write(what.replace(frames, "") + "\n");
};
const acorn = require("internal/deps/acorn/acorn/dist/acorn"), modules = require("module");
const grammar = {ecmaVersion: "latest", allowImportExportEverywhere: true, allowAwaitOutsideFunction: true};
const ofModules = /^SyntaxError: (Cannot use import statement|Unexpected token 'export')/;
let wrong;
const rewritten = code => {
    wrong = "";
    if (!/\b(im|ex)port\b/.test(code)) return code;
    let tree;
    try {
        tree = acorn.parse(code, grammar);
    } catch (error) {
        wrong = error.message;
        return code;
    }
    const changes = [], nodes = [tree];
    const change = (start, end, text) => changes.push([start, end, text]);
    const text = ({start, end}) => code.slice(start, end);
    const imported = ({source, attributes = []}, names = []) => {
        const options = attributes.length ? `{with: {${attributes.map(text)}}}` : "undefined";
        return `await __import(${text(source)}, ${options}, ${JSON.stringify(names)})`;
    };
    for (const node of tree.body) {
        const {type, start, end, declaration} = node;
        const lines = "\n".repeat(text(node).split("\n").length - 1);
        if (type === "ImportDeclaration") {
            const whole = node.specifiers.filter(each => each.type === "ImportNamespaceSpecifier");
            const some = node.specifiers.filter(each => !whole.includes(each));
            const named = ({imported}) => imported ? imported.name || imported.value : "default";
            const parts = some.map(each => `${JSON.stringify(named(each))}: ${each.local.name}`);
            const names = [...whole.map(each => each.local.name), ...some.length ? [`{${parts}}`] : []];
            const found = imported(node, some.map(named));
            change(start, end, (names.map(each => `const ${each} = ${found};`).join(" ") || `${found};`) + lines);
        } else if (type === "ExportDefaultDeclaration" && !declaration.id) {
            change(start, declaration.start, ";(");
            change(declaration.end, declaration.end, ")");
        } else if (/^Export/.test(type)) {
            if (declaration) change(start, declaration.start, "");
            else change(start, end, `${node.source ? imported(node) : ""};${lines}`);
        }
    }
    for (const node of nodes) {
        if (node.type === "ImportExpression") change(node.start, node.start + "import".length, "__import");
        for (const each of Object.values(node)) if (each && typeof each === "object") nodes.push(each);
    }
    changes.sort((one, other) => other[0] - one[0]);
    return changes.reduce((done, [start, end, text]) => done.slice(0, start) + text + done.slice(end), code);
};
const use = env => {
    if (!env.NODE_PATH || env.NODE_PATH === process.env.NODE_PATH) return;
    Object.assign(process.env, env);
    modules._initPaths();
    require(JSON.parse(env.NODE_OPTIONS.match(/--require=("(?:[^"\\]|\\.)*")/)[1]));
};
globalThis.__import = async (name, options, names = []) => {
    const found = await (options ? import(name, options) : import(name));
    const missing = names.find(each => !(each in found));
    if (missing === undefined) return found;
    throw new SyntaxError(`The requested module '${name}' does not provide an export named '${missing}'`);
};
inspector.connect();
let place;
inspector.post("Runtime.evaluate", {expression: "globalThis"}, (error, answer) => { place = answer.result.objectId; });
const setter = "function (value) { Object.defineProperty(this, '__value', {value, configurable: true}); }";
const keep = ({objectId, unserializableValue, value}) => inspector.post("Runtime.callFunctionOn", {
    functionDeclaration: setter, objectId: place,
    arguments: [objectId ? {objectId} : unserializableValue ? {unserializableValue} : {value}],
});
process.on("SIGINT", () => {});
process.on("uncaughtException", error => fail("Uncaught " + (error && error.stack || error)));
process.on("beforeExit", () => {
    if (cell) {
        if (waiting) fail("The cell has ended while it was waiting for something that cannot happen.", 13);
        fs.writeSync({cells}, cell + " " + (status || process.exitCode || 0) + "\n");
    }
    const head = read(12), own = cell = head.readUInt32BE(0);
    use(JSON.parse(read(head.readUInt32BE(4))));
    const code = rewritten(read(head.readUInt32BE(8)).toString());
    process.exitCode = undefined;
    status = 0;
    waiting = true;
    const expression = code + "\n//# sourceURL=cell.js";
    inspector.post("Runtime.evaluate", {expression, replMode: true, awaitPromise: true}, (error, answer) => {
        if (own !== cell) return;
        const details = answer && answer.exceptionDetails, thrown = details && details.exception;
        waiting = false;
        if (error) fail(error.message);
        else if (wrong && thrown && ofModules.test(thrown.description)) fail("Uncaught SyntaxError: " + wrong);
        else if (thrown && thrown.objectId) inspector.post("Runtime.callFunctionOn", {
            // An error of another thread, as of an import, has no description.
            functionDeclaration: "function () { return this instanceof Error ? String(this.stack) : '' }",
            objectId: thrown.objectId, returnByValue: true,
        }, (error, {result} = {}) => fail("Uncaught " + (result && result.value || thrown.description)));
        else if (details) fail("Uncaught " + (thrown && (thrown.description || String(thrown.value)) || details.text));
        else keep(answer.result);
    });
    setImmediate(() => {});
});
}"""
PROGRAMS: Final[Mapping[str, Program]] = {
    # What they start may be a program that reserves much, such as Node.
    "sh": Program(("sh", "{file}"), (".sh",), address_space=False),
    "bash": Program(("bash", "{file}"), (".bash",), address_space=False, keeping=("bash", "-c", _BASH, "{file}")),
    "javascript": Program(
        ("node", "-"),
        (".js", ".mjs"),
        address_space=False,
        reading=_NODE,
        package="nodejs",
        keeping=("node", "--expose-internals", "-e", _NODE_CELLS),
    ),
    "typescript": Program(
        _NODE,
        (".ts",),
        address_space=False,
        package="node-typescript",
        source="main.ts",
        # Only errors of syntax (TS1...) count: the types of Node's modules may not be there.
        build="tsc --target es2022 --module commonjs --esModuleInterop main.ts > errors || code=$?; cat errors; "
        "test -f main.js && ! grep -q 'error TS1[0-9]*:' errors || exit $code; mv main.js built",
        compiler="tsc",
    ),
    "c": Program(
        ("{file}",),
        (".c",),
        package="gcc",
        source="main.c",
        build="gcc -O2 -std=gnu17 -o built main.c -lm",
        compiler="gcc",
    ),
    "cpp": Program(
        ("{file}",),
        (".cpp", ".cc", ".cxx"),
        package="g++",
        source="main.cpp",
        build="g++ -O2 -std=gnu++17 -o built main.cpp",
        compiler="g++",
    ),
    "go": Program(
        ("{file}",),
        (".go",),
        address_space=False,
        package="golang-go",
        source="main.go",
        build="CGO_ENABLED=0 GOCACHE=$PWD/cache go build -ldflags=-s -o built main.go",
        compiler="go",
    ),
    "rust": Program(
        ("{file}",),
        (".rs",),
        package="rustc",
        source="main.rs",
        build="rustc --edition 2021 -O -o built main.rs",
        compiler="rustc",
    ),
    "java": Program(
        ("java", *_JVM, "-Xss32m", "-ea", "-jar", "{file}"),
        (".java",),
        address_space=False,
        package="default-jdk-headless",
        source="Main.java",
        build=_JAVA,
        compiler="javac",
    ),
    "r": Program(("Rscript", "--vanilla", "{file}"), (".r",), package="r-base-core"),
    "ruby": Program(("ruby", "{file}"), (".rb",), package="ruby"),
    "php": Program(("php", "{file}"), (".php",), package="php-cli", opening=("<?", "<?php ")),
    "perl": Program(("perl", "{file}"), (".pl",), package="perl"),
    "lua": Program(("lua", "{file}"), (".lua",), package="lua5.4"),
    "sql": Program(("{python}", "-I", "-c", _SQL, "{file}"), (".sql",)),
    "pwsh": Program(
        ("pwsh", "-NoProfile", "-NonInteractive", "-Command", _PWSH),
        (".ps1",),
        address_space=False,
    ),
}
"""What runs each language but Python."""

LANGUAGES: Final = ("python", *PROGRAMS)
_ALIASES: Final = {
    **{"py": "python", "python3": "python", "shell": "sh", "js": "javascript", "node": "javascript"},
    **{"ts": "typescript", "c++": "cpp", "golang": "go", "rs": "rust", "rb": "ruby", "pl": "perl"},
    **{"sqlite": "sql", "powershell": "pwsh"},
}
SUFFIXES: Final[Mapping[str, str]] = {
    ".py": "python",
    **{suffix: name for name, each in PROGRAMS.items() for suffix in each.suffixes},
}
"""The language of each kind of file."""
INTERPRETERS: Final[Mapping[str, str]] = {
    "python": "python",
    **{each.argv[0]: name for name, each in PROGRAMS.items() if not each.build and each.needs},
}
"""The language that the program of a first line `#!` runs."""


def language_named(name: str) -> str:
    """The name of a language as `LANGUAGES` has it; one that is not known stays as it is, in lower case."""
    name = name.strip().lower()
    return _ALIASES.get(name, name)
