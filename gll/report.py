"""The page that `gll fit --report` writes: one HTML file that needs nothing else.

Styles and pictures are inside it, there are no scripts, and a content policy forbids the browser to load anything. All
text from files is escaped: labels and ids are somebody else's.
"""

from __future__ import annotations

import base64
import datetime
import io
import math
import warnings
from html import escape
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from matplotlib.figure import Figure
from numpy.typing import NDArray

import gll
from gll.estimator import PRECOMPUTED, GraphLearningClassifier
from gll.fit_outcome import Outcome, shown

DRAWN = 20_000  # points in the picture; of more, a sample
SMALL = 500  # nodes of a graph whose eigenvectors are found exactly
COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#009988", "#bb8866", "#8866cc",
)  # fmt: skip
OTHER = "#909090"  # of the classes beyond the ten most frequent

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #5d6570; --line: #d9dde3; --paper: #ffffff; --card: #f5f6f8;
  --mark: #4477aa; --warn: #8a4b00; --warnback: #fff3e0 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --soft: #a0a8b3; --line: #3a4049; --paper: #16181c;
  --card: #1f2329; --mark: #77aadd; --warn: #ffcc80; --warnback: #3a2c14 } }
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 56rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem } h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem }
p { margin: .5rem 0 } .soft { color: var(--soft) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th { color: var(--soft); font-weight: 600; overflow-wrap: normal }
td.n, th.n { text-align: right; white-space: nowrap } td.label { min-width: 7rem }
.dot { display: inline-block; width: .7rem; height: .7rem; border-radius: 50%; margin-right: .45rem }
.bar { min-width: 6rem; width: 30% } .bar span { display: block; height: .8rem; margin-top: .35rem; border-radius: 2px;
  min-width: 1px; print-color-adjust: exact; -webkit-print-color-adjust: exact }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; margin: .75rem 0 }
dl div { background: var(--card); border-radius: .4rem; padding: .5rem .7rem }
dt { color: var(--soft); font-size: .85rem }
dd { margin: 0; font-size: 1.1rem; font-variant-numeric: tabular-nums }
.note { background: var(--warnback); color: var(--warn); border-radius: .4rem; padding: .5rem .8rem; margin: .6rem 0 }
pre { background: var(--card); border-radius: .4rem; padding: .7rem .9rem; white-space: pre-wrap; font-size: .9rem }
img, svg { max-width: 100%; height: auto; display: block } svg text { fill: var(--soft); font-size: 12px }
svg rect { fill: var(--mark) } svg line { stroke: var(--line) }
@media (max-width: 36rem) { .bar, th:last-child:empty { display: none } }
@media print { body { max-width: none; padding: 0 } h2 { break-after: avoid } tr, dl div, figure { break-inside: avoid }
  :root { --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --card: #f2f2f2; --warn: #000; --warnback: #eee } }
""".strip()

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(outcome: Outcome) -> str:
    """The whole page."""
    colours = class_colours(outcome)
    parts = [
        _head(outcome),
        "".join(f'<p class="note">{escape(shown(note, 2000))}</p>' for note in outcome.notes),
        _section("What was run", _run(outcome)),
        _section("Classes", _classes(outcome, colours)),
        _section("What to label next", _uncertain(outcome)),
        _section("The graph", _graph(outcome)),
        _section("Picture", _picture(outcome, colours)),
    ]
    if outcome.request.calibrate:
        parts.append(_section("Calibration", _calibration(outcome)))
    parts.append(_section("How to reproduce this", _reproduce(outcome)))
    title = escape(f"gll fit: {outcome.request.features.name}")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def class_colours(outcome: Outcome) -> list[str]:
    """A colour for every class; the ten most frequent get one of their own."""
    counts = [c.predicted for c in outcome.classes]
    frequent = sorted(sorted(range(len(counts)), key=lambda c: -counts[c])[: len(COLOURS)])
    own = dict(zip(frequent, COLOURS, strict=False))
    return [own.get(c, OTHER) for c in range(len(counts))]


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{body}\n</section>"


def _facts(rows: list[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>" for a, b in rows) + "</dl>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A table; cells are HTML already, heads that start with # are columns of numbers."""
    number = [name.startswith("#") for name in head]
    top = "".join(
        f"<th{' class=n' if n else ''}>{escape(h.lstrip('#'))}</th>" for h, n in zip(head, number, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(c if c.startswith("<td") else f'<td{" class=n" if n else ""}>{c}</td>'
                         for c, n in zip(row, number, strict=True)) + "</tr>\n"
        for row in rows
    )  # fmt: skip
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table></div>'


def _head(outcome: Outcome) -> str:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return (
        f"<header><h1>{escape(shown(outcome.request.features.name))}</h1>\n"
        f'<p class="soft">{escape(str(outcome.labels))} · gll {escape(gll.__version__)} · {now}</p></header>'
    )


def _run(outcome: Outcome) -> str:
    r, m = outcome.request, outcome.model
    seconds = [(f"{name}, seconds", f"{value:.2f}") for name, value in m.timings_.items()]
    facts = [("method", r.method), ("neighbours", str(r.neighbors)), ("metric", r.metric), ("seed", str(r.seed))]
    facts += [("iterations", f"{int(m.n_iter_):,}"), ("device", r.device), *seconds]
    return f"<p>{escape(str(outcome.features))}. {escape(m.description_)}.</p>\n{_facts(facts)}"


def _classes(outcome: Outcome, colours: list[str]) -> str:
    most = max(c.predicted for c in outcome.classes)
    total = outcome.graph.points
    rows = []
    for summary, colour in zip(outcome.classes, colours, strict=True):
        width = 100 * summary.predicted / most
        rows.append(
            [
                f'<td class="label">{_dot(colour)}{escape(shown(summary.name))}</td>',
                f"{summary.given:,}",
                f"{summary.predicted:,}",
                f"{summary.predicted / total:.1%}",
                _number(summary.confidence),
                f'<td class="bar"><span style="width:{width:.1f}%;background:{colour}"></span></td>',
            ]
        )
    table = _table(["class", "#labels", "#predicted", "#share", "#confidence", ""], rows)
    return (
        f'{table}\n<p class="soft">Confidence: the mean of the largest probability, over the points without a label '
        "that are predicted so. Bars: how many are predicted.</p>"
    )


def _uncertain(outcome: Outcome) -> str:
    if not outcome.uncertain:
        return "<p>Every point has a label.</p>"
    named = "point" if outcome.features.ids is None else "id"
    rows = []
    for u in outcome.uncertain:
        if u.unreached:
            best = second = "no label reaches it"
        else:
            best = f"{escape(shown(u.first))} ({u.first_probability:.2f})"
            second = f"{escape(shown(u.second))} ({u.second_probability:.2f})"
        rows.append([escape(shown(u.name)), best, second, f"{u.margin:.3f}", f"{u.entropy:.3f}"])
    table = _table([named, "most probable", "next", "#margin", "#entropy"], rows)
    return (
        "<p>Here the two most probable classes are closest. The points are chosen apart from each other, because "
        f'neighbours would mostly get the same label.</p>\n{table}\n<p class="soft">Margin: lead of the most probable '
        "class over the next. Entropy: in nats; 0 is certain.</p>"
    )


def _graph(outcome: Outcome) -> str:
    g = outcome.graph
    facts = [
        ("points", f"{g.points:,}"),
        ("nodes (distinct points)", f"{g.nodes:,}"),
        ("edges", f"{g.edges:,}"),
        ("components", f"{g.components:,}"),
        ("nodes in the largest", f"{g.largest:,}"),
        ("components without a label", f"{g.unlabelled_components:,}"),
        ("points no label reaches", f"{g.unreached:,}"),
        ("recall of the search", "exact" if g.exact else f"{g.recall:.4f} (on a sample)"),
    ]
    picture = f'<figure style="margin:0">{histogram(g.neighbors)}</figure>'
    return f"{_facts(facts)}\n<p>How many neighbours the nodes have:</p>\n{picture}"


def histogram(count: dict[int, int], bins: int = 24) -> str:
    """Bars of how often each number occurs, as SVG; numbers share a bar where there are many.

    >>> histogram({1: 2, 3: 1}).count("<rect")
    2
    """
    low, high = min(count), max(count)
    step = max(1, math.ceil((high - low + 1) / bins))
    start = list(range(low, high + 1, step))
    height = [sum(n for value, n in count.items() if s <= value < s + step) for s in start]
    width, tall, base = 560, 150, 170
    each = width / len(start)
    every = max(1, math.ceil(len(start) / 12))
    out = [f'<svg viewBox="0 0 {width + 20} 200" width="{width + 20}" height="200" role="img">']
    out.append("<title>Histogram of the number of neighbours</title>")
    out.append(f'<line x1="10" y1="{base}" x2="{width + 10}" y2="{base}"/>')
    for place, (s, h) in enumerate(zip(start, height, strict=True)):
        x, y = 10 + place * each, tall * h / max(height)
        span = f"{s}" if step == 1 else f"{s} to {s + step - 1}"
        if h:
            out.append(
                f'<rect x="{x + each * 0.08:.1f}" y="{base - y:.1f}" width="{each * 0.84:.1f}" height="{y:.1f}">'
                f"<title>{span} neighbours: {h:,} nodes</title></rect>"
            )
        if place % every == 0:
            out.append(f'<text x="{x + each / 2:.1f}" y="{base + 16}" text-anchor="middle">{s}</text>')
    out.append(f'<text x="10" y="12">{max(height):,} nodes at most</text></svg>')
    return "".join(out)


def _calibration(outcome: Outcome) -> str:
    m = outcome.model
    before = m._fitted.propagation.probability.max(1).values.cpu().numpy()[m.node_]
    free = ~outcome.labels.known
    if not free.any():
        free = ~free
    facts = [
        ("temperature", f"{m.temperature_:.3f}"),
        ("mean confidence before", f"{before[free].mean():.3f}"),
        ("mean confidence after", f"{m.label_distributions_.max(1)[free].mean():.3f}"),
    ]
    if m.temperature_ == 1:
        says = "Nothing was changed."
    else:
        says = "The probabilities were too timid." if m.temperature_ < 1 else "The probabilities were too bold."
    return (
        "<p>The labels were hidden in turn, and the temperature is the one under which the hidden ones are the most "
        f"likely. It changes how sure the probabilities are, and no prediction. {says}</p>\n{_facts(facts)}"
    )


def _reproduce(outcome: Outcome) -> str:
    about = outcome.about()
    versions = ", ".join(f"{name} {value}" for name, value in about["versions"].items())
    files = "".join(
        f'<p class="soft">{escape(shown(name, 500))}<br>SHA-256 {value}</p>' for name, value in outcome.inputs.items()
    )
    return f"<pre>{escape(shown(about['command'], 5000))}</pre>\n<p>{escape(versions)}</p>\n{files}"


def _picture(outcome: Outcome, colours: list[str]) -> str:
    n = outcome.graph.points
    rng = np.random.default_rng(outcome.request.seed)
    known = np.flatnonzero(outcome.labels.known)
    rows = np.arange(n)
    said = f"All {n:,} points"
    if n > DRAWN:
        # The labelled points first: they are few, and what one looks for.
        kept = known if len(known) <= DRAWN // 2 else rng.choice(known, DRAWN // 2, replace=False)
        rest = np.setdiff1d(rows, kept)
        rows = np.sort(np.concatenate([kept, rng.choice(rest, DRAWN - len(kept), replace=False)]))
        said = f"A random sample of {DRAWN:,} of the {n:,} points"
    place, how = positions(outcome.model, outcome.features.value, rows, outcome.request.metric)
    code = outcome.model.label_distributions_.argmax(1)[rows]
    data = base64.b64encode(_draw(place, code, outcome.labels.known[rows], colours)).decode()
    names = [
        f'<span style="white-space:nowrap">{_dot(colour)}{escape(shown(c.name, 30))}</span>'
        for c, colour in zip(outcome.classes, colours, strict=True)
        if colour != OTHER
    ]
    if OTHER in colours:
        names.append(f"{_dot(OTHER)}{colours.count(OTHER):,} other classes")
    return (
        f"<p>{said}, {how}; the colour is the predicted class, points in a ring are the labelled ones.</p>\n"
        f"<p>{' &ensp; '.join(names)}</p>\n"
        f'<figure style="margin:0"><img alt="The points in two dimensions, coloured by predicted class" '
        f'src="data:image/png;base64,{data}"></figure>'
    )


def positions(
    model: GraphLearningClassifier, x: Any, rows: NDArray[np.int64], metric: str
) -> tuple[NDArray[np.float64], str]:
    """(m, 2) places for these rows, and how they came about: principal components, or of a graph its eigenvectors."""
    if metric == PRECOMPUTED:
        return _spectral(model)[model.node_[rows]], "placed by two eigenvectors of the normalised graph"
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.preprocessing import normalize

    x = x[rows]
    if metric == "cosine":
        x = normalize(x)
    if x.shape[1] == 1:
        flat = x.toarray() if scipy.sparse.issparse(x) else x
        return np.column_stack([flat, np.zeros(len(rows))]).astype(np.float64), "along their one dimension"
    if scipy.sparse.issparse(x):
        found = TruncatedSVD(2, random_state=0)
        how = "on two singular vectors"
    else:
        found = PCA(2, svd_solver="randomized" if min(x.shape) > 50 else "full", random_state=0)
        how = "on their first two principal components"
    with np.errstate(divide="ignore", invalid="ignore"):  # points that all coincide have no variance to share
        place = found.fit_transform(x)
        share = float(np.nan_to_num(found.explained_variance_ratio_).sum())
    return place.astype(np.float64), f"{how}, which hold {share:.0%} of the variance"


def _spectral(model: GraphLearningClassifier) -> NDArray[np.float64]:
    """(nodes, 2) eigenvectors of D^-1/2 W D^-1/2 after the first, of large graphs roughly: it is for a picture.

    Nodes without neighbours are at the origin.
    """
    w = model.graph_.to_scipy().astype(np.float64)
    degree = np.asarray(w.sum(1)).ravel()
    scale = scipy.sparse.diags(np.where(degree > 0, degree, np.inf) ** -0.5)
    matrix, n = scale @ w @ scale, w.shape[0]
    if n <= SMALL:
        value, vector = np.linalg.eigh(matrix.toarray())
    else:
        # Unlike Lanczos' method, this one finds eigenvalues that coincide, and its time is bounded.
        start = np.random.default_rng(0).normal(size=(n, 8))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it stopped early
            value, vector = scipy.sparse.linalg.lobpcg(matrix, start, maxiter=100)
    vector = np.pad(vector[:, np.argsort(value)], ((0, 0), (1, 0)))  # two nodes have two eigenvectors only
    return np.asarray(scale @ vector[:, [-2, -3]])


def _draw(place: NDArray[np.float64], code: NDArray[np.int64], known: NDArray[np.bool_], colours: list[str]) -> bytes:
    """The points as PNG, on a transparent ground and without any text, so that it suits light and dark pages."""
    figure = Figure(figsize=(8, 6), dpi=110)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    colour = np.array(colours)[code]
    size = float(np.clip(12_000 / len(place), 2, 30))
    free, (x, y) = ~known, place.T
    axes.scatter(x[free], y[free], c=colour[free], s=size, linewidths=0, alpha=0.8)
    ring = max(45.0, 2 * size) if known.sum() <= 500 else size
    for extra, shade in ((2.6, "white"), (1.9, "black")):  # one of the two rings shows on any ground
        axes.scatter(x[known], y[known], c=shade, s=ring * extra, linewidths=0)
    axes.scatter(x[known], y[known], c=colour[known], s=ring, linewidths=0)
    out = io.BytesIO()
    figure.savefig(out, format="png", transparent=True)
    return out.getvalue()


def _dot(colour: str) -> str:
    return f'<span class="dot" style="background:{colour}"></span>'


def _number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
