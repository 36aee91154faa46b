/* libmpi_cxx.so.40, for programs whose C++ compiler has seen Open MPI's mpi.h and that use C alone: the names that its
   inline code refers to and such programs never call. One that uses MPI's old C++ interface does not start, for want of
   the others. */

#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

/* The constructor of MPI::Comm, which runs for static objects; the others end the process. */
EXPORTED void comm_constructor(void* comm) __asm__("_ZN3MPI4CommC2Ev");
EXPORTED void datatype_free(void) __asm__("_ZN3MPI8Datatype4FreeEv");
EXPORTED void win_free(void) __asm__("_ZN3MPI3Win4FreeEv");
EXPORTED void ompi_mpi_cxx_op_intercept(void);
EXPORTED void ompi_op_set_cxx_callback(void);

void comm_constructor(void* comm) { (void)comm; }
void datatype_free(void) { abort(); }
void win_free(void) { abort(); }
void ompi_mpi_cxx_op_intercept(void) { abort(); }
void ompi_op_set_cxx_callback(void) { abort(); }
