"""A plan for new keys: what grounding and lowering computed of keys is recorded, and run again."""
