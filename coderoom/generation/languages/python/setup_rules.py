"""The rules for setup code: the policy `restricted`, and what tests need in addition."""

from __future__ import annotations

from typing import Any, Final

from coderoom.sandbox import restricted_rules

__all__ = ["DECORATORS", "DEFINED", "IN_PLACE", "PATCHED", "setup_rules"]

# Instead of what the policy says, or beyond it. `None`: all that is public. What evaluates text, takes the names of
# attributes as data, or changes classes and functions that it is given is not among them.
_MODULES: Final[dict[str, str | None]] = {
    **dict.fromkeys(["base64", "binascii", "calendar", "csv", "hashlib", "os.path", "secrets", "uuid"]),
    "abc": "ABC abstractmethod",
    "array": "array",
    "asyncio": """
        CancelledError Condition Event Future Lock PriorityQueue Queue QueueEmpty QueueFull Semaphore TimeoutError
        create_task gather run sleep wait_for
    """,
    "builtins": "input open print",
    "collections": "Counter OrderedDict abc defaultdict deque namedtuple",
    "contextlib": """
        AsyncExitStack ExitStack asynccontextmanager closing contextmanager nullcontext redirect_stderr redirect_stdout
        suppress
    """,
    "copy": "copy deepcopy",
    "dataclasses": "asdict astuple dataclass field fields is_dataclass replace",
    "enum": "Enum Flag IntEnum IntFlag StrEnum auto unique",
    "functools": """
        cache cached_property cmp_to_key lru_cache partial partialmethod reduce total_ordering wraps
    """,
    "gzip": "GzipFile compress decompress open",
    "io": "BytesIO StringIO TextIOWrapper",
    "logging": """
        CRITICAL DEBUG ERROR Formatter Handler INFO NOTSET NullHandler StreamHandler WARNING disable getLogger
    """,
    "operator": """
        add and_ concat contains countOf eq floordiv ge getitem gt indexOf itemgetter le lt mod mul ne neg not_ or_ pow
        sub truediv truth xor
    """,
    "os": """
        R_OK W_OK chdir chmod curdir environ fspath getcwd getenv linesep listdir makedirs mkdir name pardir putenv
        remove removedirs rename replace rmdir scandir sep stat symlink unlink unsetenv utime walk
    """,
    "pathlib": "Path PosixPath PurePath PurePosixPath",
    "sqlite3": "Connection Row connect",
    "string": """
        Template ascii_letters ascii_lowercase ascii_uppercase capwords digits hexdigits octdigits printable punctuation
        whitespace
    """,
    "struct": " calcsize error iter_unpack pack unpack unpack_from",
    "sys": "argv byteorder float_info maxsize stderr stdin stdout version_info",
    "tempfile": "NamedTemporaryFile TemporaryDirectory TemporaryFile gettempdir mkdtemp",
    "types": "MappingProxyType NoneType SimpleNamespace",
    "typing": """
        Any AnyStr Callable ClassVar Dict FrozenSet Generator Generic Iterable Iterator List Literal Mapping NamedTuple
        NoReturn Optional Protocol Sequence Set Tuple Type TypeVar TypedDict Union cast
    """,
    "zipfile": "ZIP_DEFLATED ZIP_STORED ZipFile",
    "zoneinfo": "ZoneInfo",
    "numpy": """
        arange array asarray bool_ complex128 eye float32 float64 full identity inf int32 int64 linspace nan ndarray
        newaxis ones ones_like pi str_ uint8 zeros zeros_like random
    """,
    "numpy.random": "default_rng rand randint randn seed",
    "pandas": "DataFrame DatetimeIndex Index NA NaT Series Timedelta Timestamp concat date_range to_datetime",
}

_ATTRIBUTES: Final = "ctypes enable_load_extension eval get_field load_extension mro query tb_frame"
_DYNAMIC: Final = "write the name of the attribute out"
_NAMESPACE: Final = "setup only calls the program's functions"
_BUILTINS: Final = {
    **dict.fromkeys(["getattr", "setattr", "delattr"], _DYNAMIC),
    **dict.fromkeys(["globals", "locals", "vars"], _NAMESPACE),
}
_READ: Final = ("__name__", "__qualname__", "__doc__", "__version__", "__file__")

PATCHED: Final[dict[str, frozenset[str] | None]] = {
    "builtins": frozenset({"input", "open", "print"}),
    "datetime": frozenset({"date", "datetime"}),
    "os": frozenset({"environ"}),
    "random": None,
    "secrets": None,
    "sys": frozenset({"argv", "stderr", "stdin", "stdout"}),
    "time": None,
    "uuid": None,
}
"""What setup may put something else in the place of: clocks, chance, files, and whoever is asked. `None`: anything."""

IN_PLACE: Final = {
    "bisect": ("insort", "insort_left", "insort_right"),
    "heapq": ("heapify", "heappop", "heappush", "heappushpop", "heapreplace"),
    "random": ("shuffle",),
}
"""Functions that change the list that they are given."""

DECORATORS: Final = {
    "dataclasses": ("dataclass",),
    "enum": ("unique",),
    "functools": ("total_ordering", "wraps"),
}
"""What changes the function or class that it is given, and so has to stand over one of the setup's own."""

DEFINED: Final = frozenset(restricted_rules()["dunders"]) - {"__module__", "__dict__", "__class__"}
"""What setup's own classes may define, of the names that begin and end with two underscores."""


def setup_rules() -> dict[str, Any]:
    """The rules as `coderoom.sandbox` keeps them."""
    rules = restricted_rules()
    modules = {name: None if members is None else members.split() for name, members in _MODULES.items()}
    builtins = {name: why for name, why in rules["builtins"].items() if name not in ("open", "input")}
    return {
        **rules,
        "modules": {**rules["modules"], **modules},
        "builtins": {**builtins, **_BUILTINS},
        "attributes": {**rules["attributes"], **dict.fromkeys(_ATTRIBUTES.split(), _NAMESPACE)},
        "dunders": list(_READ),
    }
