"""A machine with two NUMA nodes in QEMU, on which placements are checked page by page: `make numa-guest`.

Needs apt-get and dpkg (nothing is installed, packages are unpacked below a cache folder), mke2fs and 2 GiB of memory; no root, no
KVM. Speed in it means nothing; where pages lie is the kernel's own doing.
"""
