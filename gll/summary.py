"""The tables that `gll doctor` and `gll fit` print."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from gll.doctor import Report
from gll.fit_outcome import Outcome, shown


def doctor_table(r: Report, name: str) -> Table:
    """What was found about the features of a file.

    Args:
        r: the findings.
        name: of the file.
    """
    rows = [
        ("rows with NaN or infinity", f"{r.rows_not_finite:,}"),
        ("rows of zeros", f"{r.zero_rows:,}"),
        ("constant dimensions", f"{r.constant_dimensions:,}"),
        ("exact duplicates (largest group)", f"{r.duplicates:,} ({r.largest_group_of_copies:,})"),
        (f"edges at k = {r.k} (of weight zero)", f"{r.edges:,} ({r.vanished_edges:,})"),
        ("components (largest, isolated points)", f"{r.components:,} ({r.largest_component:,}, {r.isolated_points:,})"),
        ("degree: min, median, max", f"{r.degree_min:.3g}, {r.degree_median:.3g}, {r.degree_max:.3g}"),
        ("bandwidth: min, median, max", f"{r.bandwidth_min:.3g}, {r.bandwidth_median:.3g}, {r.bandwidth_max:.3g}"),
    ]
    if r.labelled:
        rows += [
            ("labels (classes)", f"{r.labelled:,} ({r.classes:,})"),
            ("components without a label", f"{r.components_without_label:,}"),
            ("points no label reaches", f"{r.unreached:,}"),
            ("condition estimate", f"{r.condition:.1e}" if r.condition > 0 else "nothing to solve"),
        ]
    return _findings(f"{name}: {r.points:,} points in {r.dimensions} dimensions, {r.dtype}", rows)


def fit_tables(outcome: Outcome) -> list[Table]:
    """Classes, graph, and what to label next."""
    classes = Table(title="classes")
    for name in ("class", "labels", "predicted", "confidence"):
        classes.add_column(name, justify="left" if name == "class" else "right")
    for c in outcome.classes:
        sure = "–" if c.confidence != c.confidence else f"{c.confidence:.2f}"
        classes.add_row(Text(shown(c.name)), f"{c.given:,}", f"{c.predicted:,}", sure)
    g, m = outcome.graph, outcome.model
    rows = [
        ("nodes (points)", f"{g.nodes:,} ({g.points:,})"),
        ("edges", f"{g.edges:,}"),
        ("components (largest)", f"{g.components:,} ({g.largest:,})"),
        ("points no label reaches", f"{g.unreached:,}"),
        ("recall of the search", "exact" if g.exact else f"{g.recall:.4f}"),
        *((f"seconds: {name}", f"{seconds:.2f}") for name, seconds in m.timings_.items()),
    ]
    if outcome.request.calibrate:
        rows.append(("temperature", f"{m.temperature_:.3f}"))
    tables = [classes, _findings("graph", rows)]
    if outcome.uncertain:
        next_ = Table(title="what to label next")
        for name in ("point" if outcome.features.ids is None else "id", "most probable", "next", "margin"):
            next_.add_column(name, justify="right" if name == "margin" else "left")
        for u in outcome.uncertain:
            both = (f"{shown(u.first)} ({u.first_probability:.2f})", f"{shown(u.second)} ({u.second_probability:.2f})")
            both = ("no label reaches it", "") if u.unreached else both
            next_.add_row(Text(shown(u.name)), *map(Text, both), f"{u.margin:.3f}")
        tables.append(next_)
    return tables


def _findings(title: str, rows: list[tuple[str, str]]) -> Table:
    table = Table(title=title)
    table.add_column("finding")
    table.add_column("value", justify="right")
    for row in rows:
        table.add_row(*row)
    return table
