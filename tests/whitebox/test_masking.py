"""Masking of secrets in long texts, which is done piece by piece."""

from __future__ import annotations

import pytest

from coderoom._util import text
from coderoom._util.text import MASK, Masking

LETTERS = "Ab0123456789" * 4
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{LETTERS * 300}\n-----END RSA PRIVATE KEY-----"
KEYS = [f"sk-{LETTERS}", f"eyJ{LETTERS}.{LETTERS * 60}.{LETTERS}", f"-eyJ{LETTERS}.{LETTERS}.{LETTERS}", PEM]


@pytest.mark.parametrize("key", KEYS, ids=["service", "token", "token-within", "file"])
def test_a_key_is_hidden_wherever_it_stands(key: str) -> None:
    masking = Masking()
    masking.hide_values({"a value of the team": "${TEAM_KEY}"})
    for before in range(8_192 - len(key) - 2, 8_200, max(1, len(key) // 10)):
        around = f"{' ' * before} {key} {'x' * 12_000} {key} a value of the team $${{A}} {'x' * 6_000}"
        hidden = masking.hide(around)
        shown = MASK if key[0] != "-" or key == PEM else f"-{MASK}"
        assert hidden.split() == [shown, "x" * 12_000, shown, "${TEAM_KEY}", "$${A}", "x" * 6_000]
        assert masking.restore(masking.hide(f"{around} ${{A}}", restorable=True)).endswith("${A}")


def test_what_stands_beside_a_key_stays() -> None:
    masking = Masking()
    masking.hide_values({"abc$def-123456789": "${MINE}"})
    hidden = masking.hide("Bearer abc$def-123456789, Bearer aaaaaaaaaaaaaaaaaaaa, https://me:secret@host/")
    assert hidden == f"Bearer ${{MINE}}, Bearer {MASK}, https://{MASK}@host/"


def test_what_is_not_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_LOOKED_AT", 100_000)
    plain, keys = "x" * 200_000, f" sk-{LETTERS}" * 3_000
    first, second, third, last = Masking().hide([plain, keys + plain, keys[:100], "no key"])
    assert (first, last) == (plain, "no key")
    assert second.startswith(f" {MASK}" * 1_800)
    assert [text.NOT_LOOKED_AT in left for left in (second, third)] == [True, True]
    assert not [left for left in (second, third) if LETTERS in left]
