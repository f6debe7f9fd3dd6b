"""What to say where the data of a cell is missing: `gll reproduce` has no option for its folder, but GLL_DATA."""

from __future__ import annotations

from gll.data.sources import ELSEWHERE, SOURCES
from gll.reproduce.below import page_of
from gll.reproduce.experiment import Experiment


def told(problem: str, data: str, experiment: Experiment) -> str:
    """A message of `gll.data`, for those who typed `gll reproduce`.

    Args:
        problem: the message.
        data: the name of the data set, or a file that is of this project and can be fetched nowhere.
        experiment: that needs it; its page says how such a file is made.
    """
    if data.lower() in SOURCES:
        return problem.replace(ELSEWHERE, "or elsewhere: set GLL_DATA")
    page = page_of(experiment)
    return f"{problem}; set GLL_DATA to the folder that has it" + (f"; what it is: {page}" if page else "")
