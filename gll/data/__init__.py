"""Data for training: known data sets and your own, which labels may be seen, derived random numbers."""

from gll.data.datasets import TrainTest, data_root, load, normalize
from gll.data.random import derived_seed, generator
from gll.data.readers import DataError
from gll.data.splits import LabelSplit, split_labels

__all__ = [
    "DataError",
    "LabelSplit",
    "TrainTest",
    "data_root",
    "derived_seed",
    "generator",
    "load",
    "normalize",
    "split_labels",
]
