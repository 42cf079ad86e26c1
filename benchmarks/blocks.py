"""Measure that reading blocks takes linear time, on replies and on texts made to hurt.

Each text is doubled three times. "per doubling" is how much longer the longest text took than half of it: 2 is linear,
4 is quadratic. "to pattern" is how much longer it took than what people write instead, a plain pattern that sees only
one shape of fence, in the same run.

    python benchmarks/blocks.py [kilobytes of the longest text]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from time import perf_counter

from coderoom.blocks import extract_code_blocks

PATTERN = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)

REPLY = '''
Here is a plan:

1. Read the file, and count the words with `collections.Counter`.
2. Print the ten most frequent ones:

   ```python
   from collections import Counter

   with open("words.txt") as lines:
       print(Counter(lines.read().split()).most_common(10))
   ```

> Note: the file has to be there. Then run

```bash
python count.py > out.txt
```

```python title="report.py"
TEMPLATE = """
```
{words}
```
"""
print(TEMPLATE.format(words=open("out.txt").read()))
```
'''

TEXTS = {
    "replies": REPLY,
    "prose": "Some words about *it*, [a link](b) and `code`.\n",
    "unclosed fences": "```python\n",
    "fences of four kinds": "```\n~~~\n````\n~~~~\n",
    "open strings": '```python\n"""\n```\n```\n',
    "strings over blocks": "```python\n\"\"\"\n```\n'''\n```\n",
    "quotes in one line": "\"'\"\"\"'''\\",
    "unbalanced markdown": "```md\n```a\n```\n",
    "fences left of their items": "- ```\n  x\ny\n",
    "unclosed execute tags": "<execute>\n",
    "mentions of execute tags": "a <execute> b\n\n",
    "execute tags with fences": "x <execute> ```\n\n",
    "execute tags in one line": "<execute>`a`</execute>`",
    "quotes in quotes": "> " * 30 + "a\n" + "b\n" * 30,
    "quotes in one line, nested": "> ",
    "lists in one line, nested": "+ ",
    "lists in lists": "* * * * * * * * a\n",
    "brackets": "[",
    "emphasis": "*a_",
    "backticks": "`a``",
    "unclosed comments": "- <!--\n",
    "one line": "x",
}

FRAMES = {"quotes in one line": ("```python\n", "\n```\n")}


def best_of(times: int, work: Callable[[str], object], text: str) -> float:
    """Return the shortest time that the work took, in seconds."""
    durations = []
    for _ in range(times):
        start = perf_counter()
        work(text)
        durations.append(perf_counter() - start)
    return min(durations)


def main(kilobytes: int = 200) -> None:
    """Print the table."""
    sizes = [kilobytes * 1000 // part for part in (8, 4, 2, 1)]
    print(f"{'':28}" + "".join(f"{size // 1000:>7} kB" for size in sizes) + "   per doubling  to pattern")
    for name, unit in TEXTS.items():
        head, tail = FRAMES.get(name, ("", ""))
        texts = [f"{head}{unit * (size // len(unit))}{tail}" for size in sizes]
        seconds = [best_of(3, extract_code_blocks, text) for text in texts]
        pattern = best_of(3, PATTERN.findall, texts[-1])
        row = "".join(f"{second * 1000:>7.1f} ms" for second in seconds)
        print(f"{name:28}{row}{seconds[-1] / seconds[-2]:>15.2f}{seconds[-1] / pattern:>12.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
