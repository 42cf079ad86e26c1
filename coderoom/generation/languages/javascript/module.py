"""Joins functions in JavaScript to one module, for tests and for export."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from coderoom.generation.languages.javascript.program import Imported, read_program
from coderoom.generation.languages.javascript.text import lines_of

__all__ = ["imported_names", "javascript_module", "without_ends"]


_MODULES = (
    "assert async_hooks buffer child_process console constants crypto dgram diagnostics_channel dns events fs http "
    "http2 https inspector module net os path perf_hooks process punycode querystring readline stream string_decoder "
    "timers tls tty url util v8 vm wasi worker_threads zlib"
)
_OF_NODE = frozenset(_MODULES.split())


def without_ends(source: str) -> tuple[str, list[str]]:
    """The source without its imports and the words that export, line for line, and its imports, a binding each."""
    source = lines_of(source)
    program = read_program(source)
    parts, at = [], 0
    for first, last in sorted(program.spans):
        parts += [source[at:first], "".join("\n" if char == "\n" else " " for char in source[first:last])]
        at = last
    imports = [text for each in program.imported for text in _statements(each)]
    return "".join([*parts, source[at:]]), imports


def imported_names(source: str) -> dict[str, str]:
    """The names that a source imports, and what each stands for."""
    kinds = {"*": "all of {}", "default": "the default of {}"}
    return {
        here: kinds.get(there, f"{{}}.{there}").format(each.module.removeprefix("node:"))
        for each in read_program(lines_of(source)).imported
        for there, here in each.names
    }


def javascript_module(implementations: Mapping[str, str], about: str) -> str:
    """The text of the module.

    Args:
        implementations: The code of each function, each after what it needs.
        about: What the module is for; it becomes a comment.
    """
    bodies, imports, names = [], dict[str, None](), dict[str, None]()
    for source in implementations.values():
        body, needed = without_ends(source)
        program = read_program(body)
        # A bracket would go on with what stands before it.
        guard = ";" if program.tokens and program.tokens[0].kind in ("sign", "regex", "template") else ""
        bodies.append(guard + body.strip())
        imports.update(dict.fromkeys(needed))
        names.update(dict.fromkeys(each.name for each in program.declared))
    parts = [_comment(about), "\n".join(imports), *bodies, f"export {{ {', '.join(names)} }};" if names else ""]
    return "\n\n".join(filter(None, parts)) + "\n"


def _statements(imported: Imported) -> Iterable[str]:
    """An import for each name, so that the same one twice can be told."""
    own = imported.module.split("/")[0] in _OF_NODE
    module = json.dumps(f"node:{imported.module}" if own else imported.module)
    if not imported.names:
        yield f"import {module};"
    for there, here in imported.names:
        if there == "*":
            yield f"import * as {here} from {module};"
        elif there == "default":
            yield f"import {here} from {module};"
        else:
            yield f"import {{ {there if there == here else f'{there} as {here}'} }} from {module};"


def _comment(about: str) -> str:
    text = "".join(char if char.isprintable() or char == "\n" else " " for char in about).strip() or "Functions."
    return "\n".join(f"// {line}".rstrip() for line in text.split("\n"))
