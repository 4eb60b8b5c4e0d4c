"""Pure functions on tensors, each linear map next to its adjoint."""
