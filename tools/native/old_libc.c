/* What glibc has gained after 2.28 and our programs use, by itself or through libstdc++.a and libgcc_eh.a; linked into
   what shall run on older systems (old_libc.py). Hidden: nobody else sees these. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* 2.32. libstdc++ counts without atomics where it is set: it never is. */
char __libc_single_threaded = 0;

/* 2.33: before it these were inline, around functions that take a version of the struct. */
int fstatat(int folder, const char* path, struct stat* out, int flags) {
  return (int)syscall(SYS_newfstatat, folder, path, out, flags);
}
int stat(const char* path, struct stat* out) { return fstatat(AT_FDCWD, path, out, 0); }
int lstat(const char* path, struct stat* out) { return fstatat(AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW); }
int fstat(int file, struct stat* out) { return (int)syscall(SYS_fstat, file, out); }
int stat64(const char* path, struct stat64* out) { return stat(path, (struct stat*)out); }
int lstat64(const char* path, struct stat64* out) { return lstat(path, (struct stat*)out); }
int fstat64(int file, struct stat64* out) { return fstat(file, (struct stat*)out); }

/* 2.36; libstdc++'s random_device. */
uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

/* 2.30; a wait of libstdc++ with a deadline of the steady clock. Where the C library lacks it, the wait is by
   the time of day, so that a program that sets the clock moves the deadline. */
int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  typedef int Wait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static Wait* volatile known = 0;
  static volatile char asked = 0;
  if (!asked) {
    known = (Wait*)dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    asked = 1;
  }
  if (known) return known(condition, mutex, clock, until);
  struct timespec now, day;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &day) != 0) return errno;
  int64_t nanoseconds = (int64_t)day.tv_nsec + until->tv_nsec - now.tv_nsec;
  time_t seconds = day.tv_sec + until->tv_sec - now.tv_sec;
  for (; nanoseconds < 0; nanoseconds += 1000000000) --seconds;
  for (; nanoseconds >= 1000000000; nanoseconds -= 1000000000) ++seconds;
  const struct timespec at = {seconds, nanoseconds};
  return pthread_cond_timedwait(condition, mutex, &at);
}

/* 2.35; what libgcc asks where an exception passes: the object that has this code, and its table of frames. */
struct found {
  uintptr_t code;
  struct dl_find_object* out;
};

static int look(struct dl_phdr_info* info, size_t size, void* pointer) {
  (void)size;
  struct found* found = pointer;
  const ElfW(Phdr)* frames = 0;
  int here = 0;
  uintptr_t begin = UINTPTR_MAX, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &info->dlpi_phdr[i];
    if (part->p_type == PT_GNU_EH_FRAME) frames = part;
    if (part->p_type != PT_LOAD) continue;
    const uintptr_t first = info->dlpi_addr + part->p_vaddr, last = first + part->p_memsz;
    here |= found->code >= first && found->code < last;
    if (first < begin) begin = first;
    if (last > end) end = last;
  }
  if (!here) return 0;
  if (!frames) return -1;
  found->out->dlfo_flags = 0;
  found->out->dlfo_map_start = (void*)begin;
  found->out->dlfo_map_end = (void*)end;
  found->out->dlfo_link_map = 0;
  found->out->dlfo_eh_frame = (void*)(info->dlpi_addr + frames->p_vaddr);
  return 1;
}

int _dl_find_object(void* code, struct dl_find_object* out) {
  struct found found = {(uintptr_t)code, out};
  return dl_iterate_phdr(look, &found) == 1 ? 0 : -1;
}
