/* A program of an MPI whose ABI Rondo does not have. */
extern int MPI_Init(int*, char***);
int main(int argc, char** argv) { return MPI_Init(&argc, &argv); }
