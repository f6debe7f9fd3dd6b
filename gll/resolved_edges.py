"""Poisson's equation where parts of a graph hang together by less than float64 resolves: thin edges are cut."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable

import torch

from gll.equations import Laplace
from gll.graph import Graph
from gll.implicit import solve
from gll.labels import Labels
from gll.propagation import Answer, Request, Solver, unlabelled_components
from gll.solution import RESULT, SolveError
from gll.solvers.auto import Auto
from gll.unreached import Unreached, UnreachedWarning


def on_resolved_edges(request: Request, run: Callable[[Request, Solver | None], Answer]) -> Answer:
    """Run a method that solves a Poisson equation, with the solver and on the edges for which it can be solved.

    What flows through an edge decides both sides of it. So clusters that hang together by less than float64 resolves
    make the equation ill-conditioned, and so does a labelled outlier, whose source has only thin edges to flow through.
    To this precision they are not connected: thin edges are cut, the parts get sources of their own, and what is then
    without a label follows its neighbours, by Laplace's equation on all edges.
    """
    graph, solver, failure = request.graph, request.solver, SolveError(RESULT.ILL_CONDITIONED)
    fast = Auto(dense_rescue=Auto().dense_cpu, dense_last=Auto().dense_cpu)
    tries: list[tuple[float, Solver | None]] = [(0.0, solver)] + [(cut, solver) for cut in (1e-12, 1e-8, 1e-5)]
    if solver is None and graph.weight.device.type == "cpu":
        # Auto factorises singular systems of up to 6,000 nodes, whose error it can then estimate best. Conjugate
        # gradients are thirty times faster at that size; where their answer is not good enough, they say so.
        tries = [(0.0, fast)] + (tries if graph.num_nodes <= Auto().dense_rescue else tries[1:])
    t, weight, degree = graph.topology, graph.weight.detach(), graph.degree.detach()
    usual = degree[degree > 0].median() if bool((degree > 0).any()) else degree.new_zeros(())
    for cut, solver in tries:
        thin = weight < cut * torch.maximum(torch.minimum(degree[t.i], degree[t.j]), usual)
        if cut > 0 and not bool((thin & (weight > 0)).any()):
            continue
        part = request
        if cut > 0:
            trimmed = graph.with_weight(torch.where(thin, 0, graph.weight))
            part = dataclasses.replace(request, graph=trimmed, policy=Unreached.UNIFORM)
        try:
            with warnings.catch_warnings():
                if cut > 0:  # what is unreached in the end is told by `propagate`
                    warnings.simplefilter("ignore", UnreachedWarning)
                answer = run(part, solver)
                return answer if cut == 0 else _rejoined(answer, request, part.graph, cut)
        except SolveError as error:
            if error.result not in (RESULT.MAX_STEPS, RESULT.ILL_CONDITIONED, RESULT.BREAKDOWN):
                raise
            failure = error
    raise failure


def _rejoined(answer: Answer, request: Request, trimmed: Graph, cut: float) -> Answer:
    """The answer on a graph with fewer edges, extended along all edges to the parts that had no label."""
    alone = unlabelled_components(trimmed, request.labels)
    lost = answer.lost if alone is None else alone if answer.lost is None else alone | answer.lost
    score = answer.score
    if lost is not None:
        known = torch.nonzero(~lost).squeeze(1)
        extended = solve(Laplace(), request.graph, Labels(known, score[known]), unreached=request.policy)
        score, lost = extended.value, extended.unreached_nodes
    text = f"{answer.description}; edges below {cut:g} of the usual degree were cut"
    return dataclasses.replace(answer, score=score, solution=None, lost=lost, description=text)
