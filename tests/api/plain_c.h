#ifndef RONDO_TESTS_API_PLAIN_C_H_
#define RONDO_TESTS_API_PLAIN_C_H_

#include "rondo/rondo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A C program's use of a group of any size: sums rank + 1 over it with options of its own. NULL, or what went wrong. */
const char* plain_c_sum(rondo_comm_t comm);

#ifdef __cplusplus
}
#endif

#endif
