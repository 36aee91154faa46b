#define RONDO_KERNEL_TABLE kAvx2Kernels
#include "kernels/combine_body.h"
