"""`TypeScriptLanguage`: functions in TypeScript, whose types are checked by `tsc`, and which run in Node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, ClassVar

from coderoom.generation.languages.compiled import CompiledLanguage
from coderoom.generation.languages.javascript.source import RESERVED

# Requests are read and answers written by functions with built-in objects of their own, which the code cannot replace.
_MAIN = """\
import fs from "node:fs";
import { types } from "node:util";
import vm from "node:vm";

const [there, here, kept] = process.argv.splice(2).map(Number);
const { apply } = Reflect, { parse } = JSON, { chdir, exit } = process;
const { setImmediate: turn, Promise: Turn } = globalThis;
const errors = [TypeError, RangeError, SyntaxError, ReferenceError, EvalError, URIError, Error];
const own = vm.runInNewContext(`(${make})`)(there, here, fs, types, errors, Object.prototype, Array.prototype);
delete process.binding;
const { whatIsLeft } = kept ? await import("./left.mjs") : {};
const program = await import("./code.js");

function make(there, here, { readSync: read, writeSync: write }, { isProxy, isNativeError }, errors, object, array) {
  const { getOwnPropertyDescriptor: field, getPrototypeOf, ownKeys } = Reflect;
  const chunk = new Uint8Array(8192);
  const builtIn = errors.map((each) => [each.prototype, each.name]);
  let before, was;

  function received(size, text = "") {
    do {
      const count = read(there, chunk, 0, size);
      if (count === 0) return "";
      text += String.fromCharCode(...chunk.subarray(0, count));
    } while (size > 32 && !text.endsWith("\\n"));
    return text;
  }

  function text(value) {
    if (value === undefined || value === null) return "null";
    if (Object.is(value, -0)) return "-0.0";
    if (typeof value === "number" && !Number.isFinite(value)) {
      return `{"$float":"${Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf"}"}`;
    }
    if (["string", "number", "boolean"].includes(typeof value)) return JSON.stringify(value);
    const known = typeof value === "object" && !isProxy(value), list = known && Array.isArray(value);
    if (!known || !(list ? [array] : [object, null]).includes(getPrototypeOf(value))) {
      throw "a value that is not data was returned";
    }
    const items = list ? new Array(value.length).fill("null") : [];
    for (const key of ownKeys(value)) {
      const { value: item, get, enumerable } = field(value, key);
      if (get || typeof key === "symbol" || typeof item === "function" || key === "$float") {
        throw "a value with code of its own was returned";
      }
      if (!list && enumerable) items.push(`${JSON.stringify(key)}:${text(item)}`);
      if (list && key !== "length" && Object.hasOwn(items, key)) items[key] = text(item);
    }
    return list ? `[${items.join()}]` : `{${items.join()}}`;
  }

  function thrown(error) {
    if (!isNativeError(error)) throw "something was thrown that is no Error";
    const names = [];
    for (let each = getPrototypeOf(error); each; each = getPrototypeOf(each)) {
      const found = builtIn.find(([prototype]) => prototype === each);
      const name = found ? found[1] : field(field(each, "constructor")?.value ?? {}, "name")?.value;
      if (found || (typeof name === "string" && !builtIn.some((one) => one[1] === name))) names.push(name);
      if (found) return `{"error":${JSON.stringify(names)},"message":${text(`${error.message}`)}}`;
    }
    throw "something was thrown that is no Error";
  }

  function answer(inputs, value, error, left) {
    let said;
    try {
      if (was !== undefined && text(before) !== was) throw "what an earlier call has returned is another value now";
      was = error ? undefined : text(value);
      before = value;
      said = error ? thrown(error[0]) : `{"value":${was},"after":${text(inputs)},"left":${text(left)}}`;
    } catch (why) {
      said = JSON.stringify({ error: [], message: typeof why === "string" ? why : "the result cannot be read" });
    }
    const escaped = (each) => `\\\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`;
    said = `${secret}${said.replace(/[\\u0080-\\uffff]/g, escaped)}\\n`;
    while (said) said = said.slice(write(here, said));
  }

  const secret = received(32);
  return { answer, next: () => received(8192) };
}

function revived(key, value) {
  return typeof value?.$float === "string" ? { nan: NaN, inf: Infinity, "-inf": -Infinity }[value.$float] : value;
}

for (let request; (request = own.next()); ) {
  const { function: name, inputs, folder } = parse(request, revived);
  let value, error;
  try {
    apply(chdir, process, [folder]);
    value = await apply(program[`coderoom_${name}`], undefined, inputs);
  } catch (why) {
    error = [why];
  }
  await new Turn((done) => { turn(done); }); // What was thrown in the meantime ends the process.
  own.answer(inputs, value, error, kept ? await whatIsLeft() : "");
}
apply(exit, process, [0]);
"""
_FAST = """\
const fs = require("fs"), path = require("path");
const compiler = process.env.PATH.split(":").map((each) => path.join(each, "tsc")).find((each) => fs.existsSync(each));
const typescript = require(path.join(path.dirname(fs.realpathSync(compiler)), "../lib/typescript.js"));
const compilerOptions = { target: "es2022", module: "es2022" };
const made = typescript.transpileModule(fs.readFileSync("code.ts", "utf8"), { compilerOptions });
fs.writeFileSync("code.js", made.outputText);
"""
# Debian has no types of Node.
_NODE = """\
declare module "node:*";
declare var process: any, Buffer: any, console: any, global: any;
declare var setTimeout: any, clearTimeout: any, setInterval: any, clearInterval: any, setImmediate: any;
declare var queueMicrotask: any, structuredClone: any, performance: any, crypto: any, URL: any, URLSearchParams: any;
declare var TextEncoder: any, TextDecoder: any, AbortController: any;
"""
_LEFT = (resources.files("coderoom.generation.languages.javascript") / "node/left.mjs").read_text("utf-8")
_LEFT = _LEFT.replace("program.mjs", "code.js")
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
        "files": {
            **{"main.mjs": _MAIN, "left.mjs": _LEFT, "package.json": '{"type": "module"}'},
            **{"node.d.ts": _NODE, "fast.cjs": _FAST, "check.ts": "LINKS"},
        },
        "source": "code.ts",
        "build": [
            *("tsc", "--strict", "--noEmitOnError", "--target", "es2022", "--lib", "es2022", "--typeRoots", "none"),
            *("--skipLibCheck", "--module", "es2022", "--moduleResolution", "node", "--pretty", "false"),
            *("code.ts", "check.ts", "node.d.ts"),
        ],
        "fast": ["node", "fast.cjs"],
        "built": ["code.js", "main.mjs", "left.mjs", "package.json"],
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

    def link(self, name: str, inputs: Sequence[tuple[str, str]], result: str) -> tuple[str, str]:
        """See `CompiledLanguage.link`."""
        given = ", ".join(f"{each}: {self.type_of(kind)}" for each, kind in inputs)
        kind, here = self._result(result), f"coderoom_{name}"
        check = f"export const {name}: ({given}) => {kind} | Promise<{kind}> = {here};"
        return f"export {{ {name} as {here} }};", f'import {{ {here} }} from "./code"; {check}'

    def _result(self, result: str) -> str:
        return "void" if result == "None" else self.type_of(result)
