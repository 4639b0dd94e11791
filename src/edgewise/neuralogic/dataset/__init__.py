"""Datasets: samples, files, databases, tensors."""

from edgewise.neuralogic.dataset.base import BaseDataset, ConvertibleDataset
from edgewise.neuralogic.dataset.csv import CSVDataset, CSVFile, Mode
from edgewise.neuralogic.dataset.db import DBDataset, DBSource, PDDLDataset
from edgewise.neuralogic.dataset.file import FileDataset
from edgewise.neuralogic.dataset.logic import Dataset, Sample
from edgewise.neuralogic.dataset.tensor import Data, TensorDataset

__all__ = [
    "BaseDataset",
    "CSVDataset",
    "CSVFile",
    "ConvertibleDataset",
    "DBDataset",
    "DBSource",
    "Data",
    "Dataset",
    "FileDataset",
    "Mode",
    "PDDLDataset",
    "Sample",
    "TensorDataset",
]
