from __future__ import annotations

from coderoom.generation.export import in_bytes, in_seconds


def test_units() -> None:
    assert [in_seconds(each) for each in (0, 1e-5, 0.0123, 0.9999, 1.26, 59.99, 3_599.9, 7_300)] == [
        "0 s", "under 1 ms", "12 ms", "1.0 s", "1.3 s", "1 min 0 s", "1 h 0 min", "2 h 1 min",
    ]  # fmt: skip
    assert [in_bytes(each) for each in (None, 0, 1_023, 1_024, 1_048_576, 5 << 40)] == [
        "not known", "0 bytes", "1023 bytes", "1.0 KiB", "1.0 MiB", "5120.0 GiB",
    ]  # fmt: skip
