"""Removes definitions from Python code that the program already has."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from coderoom.generation.parsing import UNREADABLE, parsed

__all__ = ["without_repeats"]

_MOST = 300
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def without_repeats(source: str, known: Mapping[str, str]) -> tuple[str, list[str]]:
    """Code without what it repeats of the functions that it calls.

    Left out are definitions of these functions, and of what stands beside them in their code: where it is the same, or
    where nothing that is left uses it. What differs and is used stays, and is for others to refuse. So do names that
    get their value otherwise than by a definition.

    Args:
        source: The code.
        known: The code of the functions that are there when it runs.

    Returns:
        The code, and the names that it defines no more. If nothing is left out, it is what it was.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n")
    try:
        body = parsed(lines).body
        beside = _definitions(node for code in known.values() for node in parsed(code).body)
        repeats = _repeats(body, known, beside) if known and len(body) <= _MOST else []
        text = _without(lines, repeats)
        # Others may stand on the lines that were left out.
        if repeats and _told(parsed(text).body) == _told([node for node in body if node not in repeats]):
            return text, [_name(node) for node in repeats]
    except UNREADABLE:
        pass
    return source, []


def _repeats(
    body: Sequence[ast.stmt], known: Mapping[str, str], beside: Mapping[str, Sequence[ast.stmt]]
) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    uses = {node: _used(node) for node in body}
    same = _same(_definitions(body), known, beside)
    count = -1
    while len(found) > count:  # What only a repeat has used is used by nobody any more.
        count = len(found)
        for node in [each for each in body if each not in found]:
            name = _name(node)
            used = any(name in uses[each] for each in body if each is not node and each not in found)
            if name in known:
                found += [node] if isinstance(node, _DEFINING) else []
            elif name in beside and (not used or name in same):
                found.append(node)
    return found


def _same(
    own: Mapping[str, Sequence[ast.stmt]], known: Mapping[str, str], beside: Mapping[str, Sequence[ast.stmt]]
) -> set[str]:
    """The names that mean the same on both sides, in all that they use too, and cannot be changed by either."""
    found = {
        name
        for name in own.keys() & beside.keys()
        if len({ast.dump(node) for node in (*own[name], *beside[name])}) == 1 and all(map(_is_lasting, own[name]))
    }
    nodes = [node for several in (*own.values(), *beside.values()) for node in several]
    found -= {name for node in nodes for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names}
    count = -1
    while len(found) != count:
        count = len(found)
        other = own.keys() - known.keys() - found
        found -= {name for name in found if any(_used(node) & other for node in own[name])}
    return found


def _definitions(nodes: Iterable[ast.stmt]) -> dict[str, list[ast.stmt]]:
    found: dict[str, list[ast.stmt]] = {}
    for node in nodes:
        if name := _name(node):
            found.setdefault(name, []).append(node)
    return found


def _name(node: ast.stmt) -> str:
    """The one name that a statement defines; empty if it is no definition."""
    if isinstance(node, _DEFINING):
        return node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _used(node: ast.stmt) -> set[str]:
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found.union(*(each.names for each in ast.walk(node) if isinstance(each, ast.Global)))


def _is_lasting(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return all(map(_is_fixed, [*node.args.defaults, *filter(None, node.args.kw_defaults)]))
    return isinstance(node, _DEFINING) or _is_fixed(getattr(node, "value", None))


def _is_fixed(node: ast.expr | None) -> bool:
    """Whether a value is one that nobody can change."""
    if isinstance(node, ast.Tuple):
        return all(map(_is_fixed, node.elts))
    if isinstance(node, ast.BinOp):
        return _is_fixed(node.left) and _is_fixed(node.right)
    if isinstance(node, ast.UnaryOp):
        return _is_fixed(node.operand)
    return isinstance(node, ast.Constant)


def _without(source: str, repeats: Sequence[ast.stmt]) -> str:
    lines: list[str | None] = [*source.split("\n")]
    for node in repeats:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        last = node.end_lineno or node.lineno
        while last < len(lines) and not (lines[last] or "").strip():
            last += 1
        lines[first - 1 : last] = [None] * (last - first + 1)
    return "\n".join(line for line in lines if line is not None)


def _told(body: Sequence[ast.stmt]) -> list[str]:
    return [ast.dump(node) for node in body]
