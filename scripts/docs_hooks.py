"""What MkDocs does not know of these pages. `mkdocs.yml` names this file."""

import re
from typing import Any


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove the mark of examples that no test runs, which superfences would take for a mistake.

    Files beside the folder of the pages are pages of their own in the site.
    """
    markdown = markdown.replace("](../SECURITY.md", "](security.md")
    markdown = markdown.replace("](../CONTRIBUTING.md#architecture", "](architecture.md")
    return re.sub(r"^(\s*`{3,}\w+) no-run$", r"\1", markdown, flags=re.MULTILINE)
