/* Types of the ABI of MPItrampoline: sizes and the order of a status' fields are fixed. Handles are numbers here. */
#include <stddef.h>
#include <stdint.h>
typedef uintptr_t MPI_Comm;
typedef uintptr_t MPI_Group;
typedef uintptr_t MPI_Datatype;
typedef uintptr_t MPI_Op;
typedef uintptr_t MPI_Request;
typedef uintptr_t MPI_Message;
typedef uintptr_t MPI_Errhandler;
typedef uintptr_t MPI_Info;
typedef uintptr_t MPI_Session;
typedef uintptr_t MPI_Win;
typedef uintptr_t MPI_File;
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;
typedef int MPI_Fint;
typedef struct MPI_Status {
  union {
    int internal[6];
    size_t aligned;
  };
  int MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;
