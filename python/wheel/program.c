/* A program that lies in librondo_c.so. RONDO_PROGRAM: its main(). */

int RONDO_PROGRAM(int count, char** arguments);

int main(int count, char** arguments) { return RONDO_PROGRAM(count, arguments); }
