"""What templates are written with: relations, rules, terms, functions."""
