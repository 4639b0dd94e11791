"""Grounding: keys, joins and layouts; everything that depends on data, decided once."""
