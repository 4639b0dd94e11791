"""One sentence, one attention program, five graphs, and 65,536 words: `python -m edgewise.demo`."""
