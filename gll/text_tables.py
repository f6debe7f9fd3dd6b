"""Tables in text files: CSV with a header, or one field a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from gll.doctor import LABEL_NAMES
from gll.input_files import InputError

DELIMITERS = (",", ";", "\t")


class Table:
    """A text with a header and lines of as many fields, or without a header and with one field a line."""

    def __init__(self, path: Path, text: str, *wanted: tuple[str, str]) -> None:
        self.path, self.wanted = path, wanted
        first = text.splitlines()[0] if text.strip() else ""
        self.first = first
        self.header: list[str] = []
        self.delimiter = ","
        for delimiter in DELIMITERS:
            names = [name.strip().lower() for name in next(csv.reader([first], delimiter=delimiter), [])]
            if any(set(pair) <= set(names) for pair in wanted):
                self.header, self.delimiter = names, delimiter
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, strict=True)
            self.rows = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise InputError(f"{path} is not a CSV file: line {reader.line_num}: {error}") from None

    def has(self, *names: str) -> bool:
        """Whether there are such columns."""
        return set(names) <= set(self.header)

    def lines(self, *names: str) -> Iterator[tuple[int, str, str]]:
        """Number of the line and the two fields of these names, of every line that is not empty."""
        if not self.has(*names):
            raise InputError(f"{self.path} has no header {','.join(names)}: its first line is {self.first[:80]!r}")
        for name in names:
            if self.header.count(name) > 1:
                raise InputError(f"{self.path} has two columns {name!r}")
        a, b = (self.header.index(name) for name in names)
        for line, row in self.rows[1:]:
            if not row or not any(field.strip() for field in row):
                continue
            if len(row) != len(self.header):
                raise InputError(
                    f"{self.path}, line {line}: {len(row)} fields, but the header has {len(self.header)}; put labels "
                    f"with a {self.delimiter!r} in quotes"
                )
            yield line, row[a].strip(), row[b].strip()

    def column(self, n: int) -> list[str]:
        """n fields, one a line."""
        for line, row in self.rows:
            if len(row) > 1:
                raise InputError(
                    f"{self.path}, line {line}: {len(row)} fields. Expected the header index,label and such lines, or "
                    f"one label a line for each of the {n:,} points (labels with a comma in quotes); the first line is "
                    f"{self.first[:80]!r}"
                )
        fields = [row[0] if row else "" for _, row in self.rows]
        if len(fields) > n and fields[0].strip().lower() in (*LABEL_NAMES, "label"):
            fields = fields[1:]
        while len(fields) > n and not fields[-1].strip():
            fields.pop()
        if len(fields) != n:
            raise InputError(
                f"{self.path} has {len(fields):,} lines, but there are {n:,} points: give one label a line for every "
                "point (an empty line for none), or a header index,label and lines for the labelled points only"
            )
        return fields
