int MPI_Init(int* argc, char*** argv) { return argc == 0 && argv == 0; }
