"""The public names of gll, which `import gll` offers; `gll/__init__.py` imports this file when one is asked for."""

from gll import active, calibration, methods, reweight, solvers
from gll.equations import AbstractEquation, Laplace, Poisson, SoftLaplace
from gll.estimator import GraphLearningClassifier
from gll.faiss import Faiss
from gll.features import Metric
from gll.graph import Graph, Normalization, Topology
from gll.implicit import solve
from gll.labels import Labels
from gll.loop import ActiveLearner, Suggestion
from gll.neighbors import AbstractNeighborSearch, Exact
from gll.nn import GraphLearningLayer
from gll.nonlinear import Elliptic, GinzburgLandau, PLaplace
from gll.projected import AutoSearch, Projected, RecallWarning, recall
from gll.propagation import ClassPriorWarning
from gll.similarity import Constant, Gaussian, SelfTuned, Symmetrize, edge_sqdist, knn_graph
from gll.solution import RESULT, Solution, SolveError
from gll.unreached import Unreached, UnreachedWarning

__all__ = [
    "RESULT",
    "AbstractEquation",
    "AbstractNeighborSearch",
    "ActiveLearner",
    "AutoSearch",
    "ClassPriorWarning",
    "Constant",
    "Elliptic",
    "Exact",
    "Faiss",
    "Gaussian",
    "GinzburgLandau",
    "Graph",
    "GraphLearningClassifier",
    "GraphLearningLayer",
    "Labels",
    "Laplace",
    "Metric",
    "Normalization",
    "PLaplace",
    "Poisson",
    "Projected",
    "RecallWarning",
    "SelfTuned",
    "SoftLaplace",
    "Solution",
    "SolveError",
    "Suggestion",
    "Symmetrize",
    "Topology",
    "Unreached",
    "UnreachedWarning",
    "active",
    "calibration",
    "edge_sqdist",
    "knn_graph",
    "methods",
    "recall",
    "reweight",
    "solve",
    "solvers",
]
