"""The paper's experiments, and the measurements of speed."""
