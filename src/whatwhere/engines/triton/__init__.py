"""The fast engine on the GPU, as fused Triton kernels; docs/engines/triton.md explains it."""
