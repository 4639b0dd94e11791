"""Batches of samples: one plan for any of them, whose constants are gathered; and their padding."""
