#define RONDO_KERNEL_TABLE kBaselineKernels
#include "kernels/combine_body.h"
