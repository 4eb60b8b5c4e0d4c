"""What people do with the model: each task uses inference and learning, and no task uses the
internals of another."""
