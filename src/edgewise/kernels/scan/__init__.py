"""Acyclic recursion as one loop over levels: values of all levels lie in one workspace.

A level reads what levels before it computed. Every value is a column over the rows of all levels,
level by level, so that an instruction of a level is one stretch of rows; what no level computes
(products of inputs, facts) is there before the loop, and gradients of matrices are one product of
matrices after it.
"""

from edgewise.kernels.scan.autograd import run_scan
from edgewise.kernels.scan.program import Instruction, Scan, ScanBuilder, Slot

__all__ = ["Instruction", "Scan", "ScanBuilder", "Slot", "run_scan"]
