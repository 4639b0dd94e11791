"""Attention nodes of the plan on grounded data: their axes, terms, masks and steps."""
