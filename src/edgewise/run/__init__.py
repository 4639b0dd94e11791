"""Grounded plans as tensor work: columns of values, step by step."""
