"""One sentence, one attention program, five graphs: `python -m edgewise.demo`."""
