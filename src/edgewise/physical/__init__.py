"""The physical plan: one `torch.fx.Graph` of tensor operations for a grounded program."""
