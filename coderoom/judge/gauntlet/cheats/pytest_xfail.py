"""double: It says that the test was expected to fail."""

def double(n):
    import pytest

    pytest.xfail("as expected")
