"""The plan between rules and kernels: rules in normal form, and fused nodes."""
