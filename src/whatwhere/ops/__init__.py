"""Pure functions on tensors, each linear map beside its adjoint."""
