/* Types of Open MPI's ABI, which programs have compiled in: sizes and the order of a status' fields are fixed. */
#include <stddef.h>
typedef struct ompi_communicator_t* MPI_Comm;
typedef struct ompi_group_t* MPI_Group;
typedef struct ompi_datatype_t* MPI_Datatype;
typedef struct ompi_op_t* MPI_Op;
typedef struct ompi_request_t* MPI_Request;
typedef struct ompi_message_t* MPI_Message;
typedef struct ompi_errhandler_t* MPI_Errhandler;
typedef struct ompi_info_t* MPI_Info;
typedef struct ompi_instance_t* MPI_Session;
typedef struct ompi_win_t* MPI_Win;
typedef struct ompi_file_t* MPI_File;
typedef ptrdiff_t MPI_Aint;
typedef long long MPI_Count;
typedef long long MPI_Offset;
typedef int MPI_Fint;
typedef struct ompi_status_public_t {
  int MPI_SOURCE, MPI_TAG, MPI_ERROR, _cancelled;
  size_t _ucount;
} MPI_Status;
