"""Recursion: acyclic, level by level or as one loop over the levels; cyclic, in rounds."""
