"""Imported first by the packages that only `coderoom` brings, so that they say what is missing beside them."""

try:
    from coderoom._util.distribution import MORE_NEEDED, is_slim
    from coderoom.errors import MissingDependencyError
except ModuleNotFoundError:  # Nothing keeps an installer from removing it.
    raise ImportError(
        "coderoom-slim is not installed, but coderoom is: pip install --force-reinstall coderoom"
    ) from None

if is_slim():
    raise MissingDependencyError(f"This {MORE_NEEDED}")
