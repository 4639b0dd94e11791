"""One file for each way that checkpoints are laid out: configuration, and a table of names."""
