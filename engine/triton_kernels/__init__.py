"""The kernels of GPU lanes: one table, in Triton for devices and in torch for what emulates them."""
