"""A run on many ranks: who they are, what each computes, and how they stay one run."""
