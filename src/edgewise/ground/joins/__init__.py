"""Joins of rule bodies on data: which groundings there are, in memory or on disk."""
