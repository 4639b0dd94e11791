"""Kernels see tensors and layouts, never rules."""
