#define RONDO_KERNEL_TABLE kAvx512Kernels
#include "kernels/combine_body.h"
