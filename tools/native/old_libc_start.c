/* Until 2.34 the C library ran the constructors of a program by a function that the program's start file gave it, which
   newer start files do not have (old_libc.py). Newer libraries call it, too, where they are given one. */

#include <stddef.h>

typedef int Main(int, char**, char**);
typedef void Function(void);
typedef void Constructor(int, char**, char**);

extern Constructor* __init_array_start[];
extern Constructor* __init_array_end[];
extern Function _init;
int __real___libc_start_main(Main*, int, char**, Function*, Function*, Function*, void*);

static void construct(int count, char** arguments, char** environment) {
  _init();
  const size_t constructors = (size_t)(__init_array_end - __init_array_start);
  for (size_t i = 0; i < constructors; ++i) __init_array_start[i](count, arguments, environment);
}

int __wrap___libc_start_main(Main* main, int count, char** arguments, Function* init, Function* fini, Function* end,
                             void* stack) {
  (void)init;
  return __real___libc_start_main(main, count, arguments, (Function*)construct, fini, end, stack);
}
