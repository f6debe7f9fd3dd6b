"""Labels between a fitted classifier and a loop on its graph: what the loop takes over, and what goes back."""

from __future__ import annotations

from typing import Any

import numpy as np

from gll.answers import Answers
from gll.label_names import Label, as_label
from gll.parameters import prior_of


def check_fitted(classifier: Any) -> None:
    """Raise unless this has what a fit of the classifier leaves."""
    for name in ("graph_", "labels_", "classes_", "row_", "node_"):
        if not hasattr(classifier, name):
            raise ValueError(f"{type(classifier).__name__} has no {name}: fit a GraphLearningClassifier first")


def settings_of(classifier: Any) -> dict[str, Any]:
    """The options of a loop that answers as the classifier does."""
    graph, fitted = classifier.graph_, classifier._fitted
    prior = prior_of(classifier.class_prior, classifier.classes_, graph.weight.device)
    inside = fitted.node >= 0
    mass = np.bincount(fitted.node[inside], fitted.weight[inside], minlength=graph.num_nodes)
    found: dict[str, Any] = {
        "method": fitted.method,
        "solver": classifier._solver(fitted.multilevel),
        "unreached": classifier.unreached,
        "node_mass": None if (mass == 1).all() else mass,
    }
    if prior is not None:
        found |= {"classes": [as_label(c) for c in classifier.classes_], "class_prior": prior.tolist()}
    return found


def labels_of(classifier: Any) -> tuple[list[int], list[Label], list[float]]:
    """The labelled nodes, their most probable labels, and what each counts."""
    known, (labels, strength) = [as_label(c) for c in classifier.classes_], classifier._fitted.labels()
    nodes = labels.index.tolist()
    weight = [1.0] * len(nodes) if strength is None else strength.tolist()
    return nodes, [known[c] for c in labels.value.argmax(1).tolist()], weight


def give_labels(classifier: Any, answers: Answers) -> None:
    """Tell the classifier what people have told, on all copies of a node, and what they have taken back."""
    own = {as_label(c): plain for c, plain in zip(classifier.classes_, classifier.classes_.tolist(), strict=True)}
    told = {i: c for i, c in answers.told.items() if i not in answers.taken}
    for label in ("-1", "nan", -1):
        if label in told.values() and label not in own:
            raise ValueError(f"the label {label!r} means 'unlabelled' to the classifier; tell those nodes anew")
    rows = np.flatnonzero(np.isin(classifier.node_, [*told, *answers.forgotten]))
    if len(rows):
        names = [own.get(told[i], told[i]) if i in told else None for i in classifier.node_[rows].tolist()]
        classifier.update_labels(rows, np.array(names, dtype=object))
