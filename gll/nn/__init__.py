"""Modules: the graph learning layer."""

from gll.nn.layer import GraphLearningLayer

__all__ = ["GraphLearningLayer"]
