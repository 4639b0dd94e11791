"""What one atom follows from: the part of a grounded model behind it, found from the atom down."""
