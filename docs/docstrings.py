"""Reads our docstrings the way they are meant, before mkdocstrings renders them (an extension of griffe).

- A block of `>>>` lines becomes a code block; Markdown would take it for a quotation.
- Our own line "Differentiable in:" is set in bold, like the sections around it.
- "tau, source: as in `Laplace`." among the Args speaks of two arguments; the parser knows one name a line.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*\n(?:(?!\n).*\n?)*", re.MULTILINE)  # up to the next empty line
GROUP = re.compile(r"^(    )(\w+(?:, \w+)+)(:.*(?:\n {5,}.*)*)", re.MULTILINE)


def rewrite(text: str) -> str:
    text = GROUP.sub(lambda m: "\n".join(f"{m[1]}{name}{m[3]}" for name in m[2].split(", ")), text)
    text = re.sub(r"^Differentiable in:", "**Differentiable in:**", text, flags=re.MULTILINE)
    return EXAMPLE.sub(lambda m: f"```pycon\n{m[0].rstrip()}\n```\n", text)


class Docstrings(griffe.Extension):
    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = rewrite(obj.docstring.value)
