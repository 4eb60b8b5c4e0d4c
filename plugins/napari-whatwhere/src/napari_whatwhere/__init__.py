"""Remove noise, fill in missing pixels and find anomalies in napari."""

from napari_whatwhere.layers import anomalies_of, filled_in, without_noise

__all__ = ["anomalies_of", "filled_in", "without_noise"]
