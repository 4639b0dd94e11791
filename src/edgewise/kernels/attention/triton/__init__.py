"""Attention on a GPU in Triton: along blocks of pairs, and of few queries over a cache."""
