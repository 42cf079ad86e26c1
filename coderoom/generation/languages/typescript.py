"""`TypeScriptLanguage`: functions in TypeScript, whose types are checked by `tsc`, and which run in Node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from coderoom.generation.languages.compiled import CompiledLanguage
from coderoom.generation.languages.javascript.source import RESERVED

_MAIN = """\
import fs from "node:fs";
import * as program from "./code.mjs";

const [there, here] = process.argv.splice(2).map(Number);
const builtIn = [TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError, Error];

function given(value) {
  if (Array.isArray(value)) return value.map(given);
  if (value === null || typeof value !== "object") return value;
  if (Object.keys(value).join() === "$float") return { nan: NaN, inf: Infinity, "-inf": -Infinity }[value.$float];
  const made = {};
  for (const [key, item] of Object.entries(value)) {
    Object.defineProperty(made, key, { value: given(item), configurable: true, enumerable: true, writable: true });
  }
  return made;
}

function text(value) {
  if (value === undefined || value === null) return "null";
  if (typeof value === "number" && !Number.isFinite(value)) {
    return `{"$float":"${Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf"}"}`;
  }
  if (Array.isArray(value)) return `[${Array.from(value, text).join()}]`;
  if (typeof value === "object" && [Object.prototype, null].includes(Object.getPrototypeOf(value))) {
    return `{${Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}:${text(item)}`).join()}}`;
  }
  if (["string", "number", "boolean"].includes(typeof value)) return JSON.stringify(value);
  throw new Error(`a value that is not data was returned: ${String(value).slice(0, 100)}`);
}

async function answer(request) {
  try {
    const { function: name, inputs, folder } = JSON.parse(request);
    process.chdir(folder);
    return `{"value":${text(await program[`coderoom_${name}`](...inputs.map(given)))}}`;
  } catch (error) {
    const names = [];
    let kind = error instanceof Error ? error.constructor : undefined;
    for (; kind && !builtIn.includes(kind); kind = Object.getPrototypeOf(kind)) names.push(kind.name || "Error");
    if (kind) names.push(kind.name);
    const message = error instanceof Error ? error.message : `${error} was thrown, which is no Error`;
    return JSON.stringify({ error: names, message: String(message) });
  }
}

const chunk = Buffer.alloc(65536);
let left = Buffer.alloc(0);
for (;;) {
  let end = left.indexOf(10);
  while (end < 0) {
    const size = fs.readSync(there, chunk);
    if (size === 0) process.exit(0);
    left = Buffer.concat([left, chunk.subarray(0, size)]);
    end = left.indexOf(10);
  }
  const request = left.subarray(0, end).toString();
  left = left.subarray(end + 1);
  const said = Buffer.from(`${await answer(request)}\\n`);
  for (let sent = 0; sent < said.length; ) sent += fs.writeSync(here, said, sent);
}
"""
_FAST = """\
const fs = require("fs"), path = require("path");
const compiler = process.env.PATH.split(":").map((each) => path.join(each, "tsc")).find((each) => fs.existsSync(each));
const typescript = require(path.join(path.dirname(fs.realpathSync(compiler)), "../lib/typescript.js"));
const compilerOptions = { target: "es2022", module: "es2022" };
const made = typescript.transpileModule(fs.readFileSync("code.mts", "utf8"), { compilerOptions });
fs.writeFileSync("code.mjs", made.outputText);
"""
# Debian has no types of Node.
_NODE = """\
declare module "node:*";
declare var process: any, Buffer: any, console: any, global: any;
declare var setTimeout: any, clearTimeout: any, setInterval: any, clearInterval: any, setImmediate: any;
declare var queueMicrotask: any, structuredClone: any, performance: any, crypto: any, URL: any, URLSearchParams: any;
declare var TextEncoder: any, TextDecoder: any, AbortController: any;
"""
_IMPORT = re.compile(r"^import\s[^;\"']*?[\"']([^\"']+)[\"'];?[^\S\n]*$", re.MULTILINE)
_NAME = re.compile(
    r"^(?:export\s+)?(?:declare\s+)?(?:async\s+)?(?:abstract\s+)?"
    r"(?:function\*?|class|interface|type|(?:const\s+)?enum|const|let|var)\s+([\w$]+)",
    re.MULTILINE,
)


class TypeScriptLanguage(CompiledLanguage):
    """TypeScript, tested in a session of the engine `cpython`: each call runs in a Node process of its own.

    The compiler must be installed where the code runs (`apt-get install node-typescript`).
    """

    name = "typescript"
    labels = frozenset({"typescript", "ts"})
    suffix = ".ts"
    reserved = RESERVED
    processes = 4  # In each of them, the program is compiled.
    commands: ClassVar[dict[str, str]] = {"tsc": "node-typescript", "node": "nodejs"}
    types: ClassVar[dict[str, str]] = {
        **{"str": "string", "int": "number", "float": "number", "bool": "boolean"},
        **{"list": "Array<{}>", "dict": "Record<string, {}>", "optional": "{} | null"},
    }
    how: ClassVar[dict[str, Any]] = {
        "head": "export {};",
        "bits": 53,
        "files": {"main.mjs": _MAIN, "node.d.ts": _NODE, "fast.cjs": _FAST},
        "source": "code.mts",
        "build": [
            *("tsc", "--strict", "--noEmitOnError", "--target", "es2022", "--lib", "es2022", "--typeRoots", "none"),
            *("--module", "es2022", "--moduleResolution", "node", "--pretty", "false", "code.mts", "node.d.ts"),
        ],
        "fast": ["node", "fast.cjs"],
        "built": ["code.mjs", "main.mjs"],
        "run": ["node", "{}/main.mjs"],
        "folders": {},
        "env": {"NODE_OPTIONS": "", "NODE_PATH": ""},
    }
    ways = (
        "TypeScript (strict, ES2022) on Node 18 or later, as a module. Definitions begin in the first column, and "
        "directly above the function stands the given comment with its signature. There are only functions, classes, "
        "types, constants and imports of Node's own modules, as node:NAME and in one line each; nothing runs when it "
        "is loaded. Functions that it depends on are in scope and are not imported; nothing needs to be exported. The "
        "function may be async. A wrong argument throws a fitting error: TypeError, RangeError, or a class that "
        "extends Error; a test that expects Error is not met by the first two. int and float are number, a list is an "
        "Array, a dict a plain object, and None is null. There is no network, and nobody to answer a prompt."
    )

    def split(self, source: str) -> tuple[list[str], str]:
        """See `CompiledLanguage.split`."""
        imports = [found[0].strip() for found in _IMPORT.finditer(source)]
        body = re.sub(
            r"(?m)^export\s+(?:default\s+)?(?=async|function|class|const|let|type|interface|enum|abstract)",
            "",
            _IMPORT.sub("", source),
        )
        return imports, body.strip() + "\n"

    def imported(self, line: str) -> str:
        """See `CompiledLanguage.imported`."""
        found = _IMPORT.search(line)
        return found[1].removeprefix("node:") if found else line

    def names_defined(self, source: str) -> list[str]:
        """See `Language.names_defined`."""
        return _NAME.findall(source)

    def header(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> str:
        """See `CompiledLanguage.header`."""
        given = ", ".join(f"{each}: {self.type_of(kind)}" for each, kind in inputs)
        return f"function {name}({given}): {self._result(result)} {{"

    def link(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> str:
        """See `CompiledLanguage.link`."""
        kind, given = self._result(result), ", ".join(f"{each}: {self.type_of(kind)}" for each, kind in inputs)
        return f"export const coderoom_{name}: ({given}) => {kind} | Promise<{kind}> = {name};"

    def _result(self, result: str) -> str:
        return "void" if result == "None" else self.type_of(result)
