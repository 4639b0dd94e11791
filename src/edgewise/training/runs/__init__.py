"""The folder of a run: what training writes, what resumes it, and its use as a model."""
