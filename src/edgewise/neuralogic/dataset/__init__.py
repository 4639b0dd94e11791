"""Datasets: samples, files, tensors."""

from edgewise.neuralogic.dataset.base import BaseDataset, ConvertibleDataset
from edgewise.neuralogic.dataset.csv import CSVDataset, CSVFile, Mode
from edgewise.neuralogic.dataset.file import FileDataset
from edgewise.neuralogic.dataset.logic import Dataset, Sample
from edgewise.neuralogic.dataset.tensor import Data, TensorDataset

__all__ = [
    "BaseDataset",
    "CSVDataset",
    "CSVFile",
    "ConvertibleDataset",
    "Data",
    "Dataset",
    "FileDataset",
    "Mode",
    "Sample",
    "TensorDataset",
]
