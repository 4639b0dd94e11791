"""One sentence, one attention program, four graphs: `python -m edgewise.demo`."""
