"""Reads generated JavaScript with tree-sitter: checks it, removes repeated definitions, and joins it to a module."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from coderoom.errors import MissingDependencyError
from coderoom.generation.languages import (
    CodeProblem,
    Statement,
    binding_problem,
    import_problem,
    parameter_problems,
)
from coderoom.generation.specs import FunctionSpec

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST = 200_000
_WORDS = (
    "arguments await break case catch class const continue debugger default delete do else enum eval export extends "
    "false finally for function if implements import in instanceof interface let new null package private protected "
    "public return static super switch this throw true try typeof undefined var void while with yield"
)
RESERVED: Final = frozenset(_WORDS.split())
_MODULES = (
    "assert async_hooks buffer child_process console constants crypto dgram diagnostics_channel dns events fs http "
    "http2 https inspector module net os path perf_hooks process punycode querystring readline stream string_decoder "
    "timers tls tty url util v8 vm wasi worker_threads zlib"
)
_OF_NODE = frozenset(_MODULES.split())
_FUNCTIONS = (
    "arrow_function", "function_declaration", "function_expression", "generator_function",
    "generator_function_declaration",
)  # fmt: skip
_VARIABLES = ("lexical_declaration", "variable_declaration")
_IGNORED = ("comment", "empty_statement", "hash_bang_line", "html_comment")


@functools.cache
def grammar() -> Any:
    """The grammar for the parser; `MissingDependencyError` if it is not installed."""
    try:
        import tree_sitter
        import tree_sitter_javascript
    except ImportError as error:
        raise MissingDependencyError(
            "Functions in JavaScript need tree-sitter, which is not installed: pip install 'coderoom[javascript]'"
        ) from error
    return tree_sitter.Language(tree_sitter_javascript.language())


@dataclass(frozen=True)
class _Declared:
    """A name that a top-level statement declares; `value` is its function or class, or what is assigned to it."""

    name: str
    node: Node
    value: Node | None

    @property
    def is_function(self) -> bool:
        return self.value is not None and self.value.type in _FUNCTIONS

    def parameters(self) -> list[tuple[str, bool, bool]]:
        """The name of each parameter (empty for a pattern), whether it may be omitted, and whether it is `...rest`."""
        assert self.value is not None
        single, several = (self.value.child_by_field_name(name) for name in ("parameter", "parameters"))
        found = []
        for each in [single] if single else several.named_children if several else []:
            if each.type not in _IGNORED:
                bare = _bound(each) if each.type != "rest_pattern" else each.named_children[0]
                name = _text(bare) if bare.type == "identifier" else ""
                found.append((name, each is not bare, each.type == "rest_pattern"))
        return found


@dataclass(frozen=True)
class _Imported:
    """An import: the module, and the exported and local name of each binding (`default` and `*` are such names)."""

    module: str
    node: Node
    names: tuple[tuple[str, str], ...]


@dataclass
class JavaScriptProgram:
    """The top level of a source. What tree-sitter could not parse is left to Node, which reports the error.

    When sources are joined, the spans in bytes in `removed` are left out: imports and `export` keywords.
    """

    text: str
    root: Node
    declared: list[_Declared] = field(default_factory=list)
    imported: list[_Imported] = field(default_factory=list)
    removed: list[tuple[int, int]] = field(default_factory=list)
    others: list[Node] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """The declared names, without imports."""
        return [each.name for each in self.declared]

    def body(self) -> str:
        """The source with imports and `export` keywords blanked out."""
        data = bytearray(_encoded(self.text))
        for first, last in self.removed:
            data[first:last] = bytes(each if each == 10 else 32 for each in data[first:last])
        return data.decode("utf-8", "surrogatepass")

    def imports(self) -> list[str]:
        """Its imports as statements, one for each name, so that duplicates can be found."""
        found = []
        for each in self.imported:
            own = each.module.split("/")[0] in _OF_NODE
            module = json.dumps(f"node:{each.module}" if own else each.module)
            found += [f"import {_binding(*names)} from {module};" for names in each.names] or [f"import {module};"]
        return found


def _binding(there: str, here: str) -> str:
    if there == "*":
        return f"* as {here}"
    return here if there == "default" else f"{{ {there if there == here else f'{there} as {here}'} }}"


def read_program(source: str) -> JavaScriptProgram:
    """Read a source."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    language = grammar()
    from tree_sitter import Parser  # Only now is it known to be installed.

    program = JavaScriptProgram(text, Parser(language).parse(_encoded(text)).root_node)
    for node in program.root.children:
        for each in node.children if node.type == "ERROR" else [node]:
            _read_statement(program, each)
    return program


def _read_statement(program: JavaScriptProgram, node: Node) -> None:
    if node.type == "import_statement":
        module = node.child_by_field_name("source")
        names = []
        for each in _walk(node):
            if each.type == "namespace_import":
                names.append(("*", _text(each.named_children[-1])))
            elif each.type == "import_specifier":
                here = each.child_by_field_name("alias") or each.named_children[0]
                names.append((_text(each.named_children[0]), _text(here)))
            elif each.type == "identifier" and each.parent is not None and each.parent.type == "import_clause":
                names.append(("default", _text(each)))
        program.imported.append(_Imported(_text(module)[1:-1] if module else "", node, tuple(names)))
        program.removed.append((node.start_byte, node.end_byte))
        return
    inner = node
    if node.type == "export_statement":
        found = node.child_by_field_name("declaration") or node.child_by_field_name("value")
        if found is None and node.child_by_field_name("source"):
            program.others.append(node)
        program.removed.append((node.start_byte, found.start_byte if found else node.end_byte))
        if found is None or node.child_by_field_name("value"):
            return
        inner = found
    declared = list(_declared(inner))
    program.declared += declared
    if not declared and node is inner and node.is_named and node.type not in _IGNORED:
        program.others.append(node)


def _declared(node: Node) -> Iterator[_Declared]:
    if node.type in _VARIABLES:
        for each in node.named_children:
            name = each.child_by_field_name("name")
            if name is not None:
                value = each.child_by_field_name("value") if name.type == "identifier" else None
                yield from (_Declared(_text(part), part, value) for part in _names_in(name))
        return
    if node.type == "expression_statement" and node.named_children:  # So tree-sitter reads an unfinished function.
        node = node.named_children[0]
    name = node.child_by_field_name("name")
    if name is not None and (node.type in _FUNCTIONS or node.type == "class_declaration"):
        yield _Declared(_text(name), name, node)


def _names_in(pattern: Node) -> Iterator[Node]:
    """The names that a pattern binds."""
    left = [pattern]
    while left:
        node = _bound(left.pop())
        if node.type in ("identifier", "shorthand_property_identifier_pattern"):
            yield node
        elif node.type in ("array_pattern", "object_pattern", "rest_pattern"):
            left += reversed(node.named_children)


def _bound(pattern: Node) -> Node:
    """A pattern without its default value and without the key of an object pattern."""
    for name in ("left", "value"):
        pattern = pattern.child_by_field_name(name) or pattern
    return pattern


def check_source(
    source: str,
    spec: FunctionSpec,
    *,
    taken: Mapping[str, str] | None = None,
    allowed_imports: Collection[str] | None = None,
) -> list[CodeProblem]:
    """See `Language.check`."""
    if len(source) > _LONGEST:
        text = f"the code has {len(source):,} characters; at most {_LONGEST:,} are allowed"
        return [CodeProblem(line=None, text=text)]
    program = read_program(source)
    found = []
    for node in program.others:
        if node.type == "export_statement":
            found.append(_problem(node, "exports from other modules are not allowed here"))
        elif node.type not in ("if_statement", "try_statement") and not _is_setting(node):
            what = "an expression" if node.type == "expression_statement" else node.type.replace("_", " ")
            text = f"only definitions, imports and assignments are allowed at the top level, not {what}"
            found.append(_problem(node, f"{text}; move it into a function"))
    found += [*_of_imports(program, allowed_imports), *_of_function(program, spec)]
    bound = [(each.name, each.node) for each in program.declared]
    bound += [(here, each.node) for each in program.imported for _, here in each.names]
    found += [_problem(node, problem) for name, node in bound if (problem := binding_problem(name, spec, taken))]
    return sorted(found, key=lambda problem: problem.line or 0)


def _is_setting(node: Node) -> bool:
    """Whether a statement only assigns something other than CommonJS exports, or is a directive."""
    if node.type != "expression_statement":
        return False
    inner = node.named_children[0] if node.named_children else node
    parts = inner.named_children if inner.type == "sequence_expression" else [inner]
    kinds = ("assignment_expression", "augmented_assignment_expression", "update_expression", "string")
    first = next(each for each in _walk(inner) if not each.children)
    return all(each.type in kinds for each in parts) and _text(first) not in ("module", "exports")


def _of_imports(program: JavaScriptProgram, allowed: Collection[str] | None) -> Iterator[CodeProblem]:
    if allowed is not None and program.root.has_error:
        wrong = next(each for each in _walk(program.root) if each.is_error or each.is_missing)
        yield _problem(wrong, "this is not valid JavaScript, so its imports cannot be checked")
    for each in program.imported:
        yield from _of_module(each.module, each.node, allowed)
        if any(part.type == "import_attribute" for part in each.node.children):
            yield _problem(each.node, "this form of import is not supported; import names, a default, or *")
    for node in _walk(program.root):
        if node.type == "call_expression":
            yield from _of_call(node, allowed)
        elif allowed is not None and not node.children and _text(node) in (
            "getBuiltinModule", "createRequire", "binding",
        ):  # fmt: skip
            yield _problem(node, f"{_text(node)} is not allowed here; use import")


def _of_call(node: Node, allowed: Collection[str] | None) -> Iterator[CodeProblem]:
    called, given = (node.child_by_field_name(name) for name in ("function", "arguments"))
    if called is None or given is None:
        return
    if called.type == "identifier" and _text(called) == "require":
        yield _problem(node, "modules have no require(); use import")
    elif called.type == "import":
        module = next((each for each in given.named_children if each.type != "comment"), None)
        if module is not None and module.type == "string" and "\\" not in _text(module):
            yield from _of_module(_text(module)[1:-1], node, allowed)
        elif allowed is not None:
            yield _problem(node, "the module of import() must be a string literal")


def _of_module(name: str, node: Node, allowed: Collection[str] | None) -> Iterator[CodeProblem]:
    if name.startswith((".", "/", "file:")):
        yield _problem(node, "imports of other files are not possible here")
        return
    known = {each.removeprefix("node:") for each in allowed} if allowed is not None else None
    if problem := import_problem(name, name.removeprefix("node:").split("/"), known, "/"):
        yield _problem(node, problem)


def _of_function(program: JavaScriptProgram, spec: FunctionSpec) -> list[CodeProblem]:
    found = [each for each in program.declared if each.name == spec.name]
    function = next((each for each in found if each.is_function), None)
    if function is None:
        return [CodeProblem(line=None, text=f"it does not define the function {spec.name!r} at its top level")]
    if len(found) > 1:
        return [_problem(found[1].node, f"it defines {spec.name!r} twice")]
    parameters = [(name, optional) for name, optional, _ in function.parameters()]
    return [_problem(function.node, text) for text in parameter_problems(spec, parameters)]


def statements(text: str) -> list[Statement]:
    """See `Language.statements`."""
    root = read_program(text).root
    return [_statement(node) for node in root.named_children if not root.has_error and node.type not in _IGNORED]


def _statement(node: Node) -> Statement:
    declared = [*_declared(node.child_by_field_name("declaration") or node)]
    parent = declared[0].node.parent if len(declared) == 1 else None
    one = declared[0] if parent is not None and not parent.type.endswith("pattern") else None
    kind = one.value.type if one is not None and one.value is not None else ""
    texts = [_text(each) for each in _leaves(node) if each.type != "export"]
    constant = texts[:1] == ["const"] and kind in ("number", "string")
    return Statement(
        span=(node.start_byte, node.end_byte),
        name=one.name if one is not None else "",
        text="\n".join(texts).rstrip("\n;"),
        uses=set(texts),
        is_callable=kind in _FUNCTIONS or kind == "class_declaration",
        is_constant=constant or kind in ("function_declaration", "generator_function_declaration"),
    )


def javascript_module(implementations: Mapping[str, str], about: str) -> str:
    """See `Language.write_module`; all top-level definitions are exported."""
    programs = [read_program(source) for source in implementations.values()]
    imports = dict.fromkeys(line for program in programs for line in program.imports())
    names = dict.fromkeys(name for program in programs for name in program.names)
    bodies = []
    for program in programs:
        body = program.body()
        first = next((_text(each) for each in _leaves(read_program(body).root)), "")
        # These would continue the previous statement.
        bodies.append((";" if first[:1] in ("(", "[", "`", "/", "+", "-", "*") else "") + body.strip())
    lines = "".join(each if each.isprintable() or each == "\n" else " " for each in about).strip() or "Functions."
    comment = "\n".join(f"// {line}".rstrip() for line in lines.split("\n"))
    parts = [comment, "\n".join(imports), *bodies, f"export {{ {', '.join(names)} }};" if names else ""]
    return "\n\n".join(filter(None, parts)) + "\n"


def _walk(node: Node) -> Iterator[Node]:
    left = [node]
    while left:
        node = left.pop()
        yield node
        left += reversed(node.children)


def _leaves(node: Node) -> Iterator[Node]:
    """The tokens of a node, without comments."""
    return (each for each in _walk(node) if not each.children and each.type not in ("comment", "html_comment"))


def _problem(node: Node, text: str) -> CodeProblem:
    return CodeProblem(line=node.start_point[0] + 1, text=text)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
