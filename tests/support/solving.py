"""What a model says that makes a function `double`, as recorded replies."""

from __future__ import annotations

import json

__all__ = ["GOOD", "SPECS", "TESTS", "WRONG"]

SPECS = json.dumps(
    {
        "function_specs": [
            {
                "name": "double",
                "purpose": "Twice x.",
                "inputs": [{"name": "x", "type": "int"}],
                "outputs": {"type": "int", "description": ""},
                "dependencies": [],
                "complexity": "simple",
            }
        ]
    }
)
TESTS = json.dumps(
    {"tests": [{"name": f"{x} gives {2 * x}", "inputs": {"x": x}, "expected_output": 2 * x} for x in (0, 21, -3)]}
)
GOOD = "~~~python\ndef double(x):\n    return 2 * x\n~~~"
WRONG = "~~~python\ndef double(x):\n    return x * x\n~~~"
