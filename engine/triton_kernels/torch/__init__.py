"""The kernels of a GPU lane in plain torch: a few lines each, on any device. What Triton's are tested against."""
