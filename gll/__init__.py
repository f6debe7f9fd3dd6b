"""gll: graph learning layers for PyTorch."""

from importlib.metadata import PackageNotFoundError, version

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

try:
    __version__ = version("gll")
except PackageNotFoundError:  # a checkout on the path that is not installed
    __version__ = "0.0.0"

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
