// Gated DeltaNet: the two inner kernels, the convolution of a token and the step of one head. Signatures are ld_delta_kernels of
// dispatch.h; names are <op>_<isa>. Widths are multiples of 16, pointers to f32 need no alignment.
//
// conv: y[c] = silu(sum over j < taps of w[j * w_stride + c] * x[j][c]), c < n.
// step: with M = from, dim x dim, keys x values, row after row (NULL: zeros):
//   d = rate * (v - decay * M^T k);  out = decay * M^T q + (k . q) * d;  to = decay * M + k d^T
// which is the rule with both products taken from the matrix as it was, so that it is read once. `to` may be `from`, else they do
// not overlap; it is 64-byte aligned and written past the caches: a layer's matrices are megabytes, and lines of another slot would
// have to be read before they are written. The matrix that lies behind `from` is asked for meanwhile. Sums in f32, in order of the rows.
#pragma once
#include "dispatch.h"
