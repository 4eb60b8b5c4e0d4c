"""What people do with the model: each task uses inference and learning, and none uses the inside
of another."""
