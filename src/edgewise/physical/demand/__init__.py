"""Demand: the part of a grounded plan that some rows of its outputs need."""
