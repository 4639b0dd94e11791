"""A call of `attention`: its arguments checked, prepared once, cached, traced, split by graph."""
