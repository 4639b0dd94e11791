"""Masks on data: which pairs conditions hold for, lowered by cost to runs of keys, never to n²."""
