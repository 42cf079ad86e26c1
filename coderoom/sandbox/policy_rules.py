"""The rules of the policy `restricted`, as data for both sides of the wall."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["MAX_CHARACTERS", "restricted_rules"]

MAX_CHARACTERS: Final = 250_000
"""Checking takes memory and time on the host: longer code is refused unchecked."""

# Kagura's lists, and what ordinary Python of a model needs. `abc`, `asyncio`, `contextlib`, `numbers`,
# `types` and `__future__` belong to the language (abstract classes, `async`, `with`, annotations); `bisect`, `cmath`,
# `heapq`, `pprint` and `textwrap` only compute. Where a module can do more than that, its harmless names are listed.
_MODULES: Final[dict[str, str | None]] = {
    **dict.fromkeys(["math", "random", "statistics", "json", "re", "string", "datetime", "collections"]),
    **dict.fromkeys(["itertools", "functools", "operator", "copy"]),
    **dict.fromkeys(["decimal", "fractions", "typing", "dataclasses", "enum", "time"]),
    **dict.fromkeys(["__future__", "abc", "contextlib", "numbers"]),
    **dict.fromkeys(["bisect", "cmath", "heapq", "pprint", "textwrap"]),
    **dict.fromkeys(["collections.abc", "json.decoder", "json.encoder"]),
    "asyncio": """
        ALL_COMPLETED FIRST_COMPLETED FIRST_EXCEPTION Barrier BoundedSemaphore BrokenBarrierError CancelledError
        Condition Event Future InvalidStateError LifoQueue Lock PriorityQueue Queue QueueEmpty QueueFull Runner
        Semaphore Task TaskGroup Timeout TimeoutError all_tasks as_completed create_task current_task ensure_future
        gather isfuture iscoroutine iscoroutinefunction run shield sleep timeout timeout_at wait wait_for
    """,
    "types": """
        AsyncGeneratorType BuiltinFunctionType BuiltinMethodType CoroutineType DynamicClassAttribute EllipsisType
        FunctionType GeneratorType GenericAlias LambdaType MappingProxyType MethodType ModuleType NoneType
        NotImplementedType SimpleNamespace TracebackType UnionType coroutine get_original_bases new_class
        prepare_class resolve_bases
    """,
}

_FILES: Final = "files are out of reach under this policy, put the data in the code"
_NETWORK: Final = "the network is out of reach under this policy, put the data in the code"
_PROGRAMS: Final = "other programs and threads are out of reach under this policy, compute it here"
_INSIDES: Final = "the interpreter's insides are out of reach under this policy"
_PACKAGES: Final = "there are no third-party packages under this policy, use the standard modules and lists"
_EVALUATE: Final = "write the code out, or read data with `json.loads`"
_NAMESPACE: Final = "keep named values in a dict of your own"
_CLASSES: Final = "use `isinstance` or `issubclass`"

# The reason, and the nearest alternative.
_MODULE_HINTS: Final = {
    _FILES: "codecs csv fileinput glob gzip io linecache mmap os pathlib pickle posix shelve shutil sqlite3 tarfile "
    "tempfile zipfile",
    _NETWORK: "aiohttp ftplib http httpx requests select selectors smtplib socket socketserver ssl urllib urllib3 "
    "webbrowser xmlrpc",
    _PROGRAMS: "_thread concurrent ctypes fcntl multiprocessing pty queue resource signal subprocess threading",
    _INSIDES: "ast atexit builtins code codeop dis gc importlib inspect marshal pkgutil pydoc runpy site tracemalloc "
    "weakref",
    _PACKAGES: "attr bs4 lxml matplotlib networkx numpy pandas PIL plotly polars pydantic scipy seaborn sklearn sympy "
    "tensorflow torch yaml",
    "to end early, use `raise SystemExit`": "sys",
    "write the checks with `assert`": "doctest pytest unittest",
    "what is raised is reported anyway": "faulthandler traceback",
    "use `print`": "logging",
}

_BUILTINS: Final = {
    "open": _FILES,
    "eval": _EVALUATE,
    "exec": _EVALUATE,
    "compile": _EVALUATE,
    "__import__": "use an `import` statement",
    "input": "nobody can answer, put the values in the code",
    "breakpoint": "use `print`",
    "help": "nobody reads it",
    "globals": _NAMESPACE,
    "locals": _NAMESPACE,
}

_NAMES: Final = "__build_class__ __builtins__ __cached__ __file__ __loader__ __path__ __spec__"

_FRAMES: Final = """
    f_back f_builtins f_code f_globals f_locals f_trace gi_code gi_frame gi_yieldfrom cr_await cr_code cr_frame
    cr_origin ag_await ag_code ag_frame tb_frame tb_next func_closure func_code func_dict func_globals
"""

# With hints where there is a harmless alternative. Other names with two underscores on both sides are refused, except
# those in the list below.
_ATTRIBUTES: Final = {
    "__class__": "use `type(x)`",
    "__dict__": "use `vars(x)`",
    "__base__": _CLASSES,
    "__bases__": _CLASSES,
    "__mro__": _CLASSES,
    "__subclasses__": "keep a list of the classes of your own",
    "__getattribute__": "define `__getattr__`, or use `getattr`",
    "__reduce__": "use `copy.copy`",
    "__reduce_ex__": "use `copy.copy`",
}

_ARITHMETIC: Final = "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or"

_DUNDERS: Final = """
    name qualname doc module version annotations wrapped defaults kwdefaults type_params
    new init del post_init init_subclass class_getitem set_name call slots match_args prepare
    instancecheck subclasscheck subclasshook abstractmethods isabstractmethod
    repr str bytes format hash bool int float complex index round trunc floor ceil neg pos abs invert
    lt le eq ne gt ge
    len length_hint getitem setitem delitem missing contains iter next reversed
    getattr setattr delattr dir get set delete
    enter exit await aiter anext aenter aexit
    copy deepcopy replace getstate setstate getnewargs getnewargs_ex fspath sizeof
    cause context suppress_context traceback notes
    members dataclass_fields dataclass_params origin args parameters supertype bound constraints
    total required_keys optional_keys
"""


def restricted_rules() -> dict[str, Any]:
    """The rules as JSON-like data, for `guest.restricted.Rulebook`."""
    dunders = [
        *_DUNDERS.split(),
        *(prefix + name for prefix in ("", "r", "i") for name in _ARITHMETIC.split()),
    ]
    return {
        "modules": {name: None if members is None else members.split() for name, members in _MODULES.items()},
        "module_hints": {name: hint for hint, names in _MODULE_HINTS.items() for name in names.split()},
        "builtins": dict(_BUILTINS),
        "names": _NAMES.split(),
        "attributes": {**_ATTRIBUTES, **dict.fromkeys(_FRAMES.split(), _INSIDES)},
        "dunders": [f"__{name}__" for name in dunders],
    }
