"""Compiles libraries for LD_PRELOAD that make functions of the system fail."""

import subprocess

import pytest

FAILING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

static int number(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text ? atoi(text) : otherwise;
}

/* NO_LOCKS=ERRNO: a file system without locks. */
int flock(int file, int operation) {
  static int (*real)(int, int);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "flock");
  const int error = number("NO_LOCKS", 0);
  if (!error) return real(file, operation);
  errno = error;
  return -1;
}

int fcntl64(int file, int command, ...) {
  static int (*real)(int, int, ...);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "fcntl64");
  va_list list;
  va_start(list, command);
  void* argument = va_arg(list, void*);
  va_end(list);
  const int locks = command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK ||
                    command == F_OFD_SETLKW || command == F_OFD_GETLK;
  const int error = locks ? number("NO_LOCKS", 0) : 0;
  if (!error) return real(file, command, argument);
  errno = error;
  return -1;
}

/* NO_LINKS=1: a file system without hard links. */
int link(const char* from, const char* to) {
  static int (*real)(const char*, const char*);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "link");
  if (!number("NO_LINKS", 0)) return real(from, to);
  errno = EPERM;
  return -1;
}

/* PROCESSES=N: no more than N processes are started. */
pid_t fork(void) {
  static pid_t (*real)(void);
  static atomic_int started;
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "fork");
  if (atomic_fetch_add(&started, 1) < number("PROCESSES", 1 << 30)) return real();
  errno = EAGAIN;
  return -1;
}

/* THREADS=N: no more than N threads are started. */
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static atomic_int started;
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  if (atomic_fetch_add(&started, 1) >= number("THREADS", 1 << 30)) return EAGAIN;
  return real(thread, attributes, run, argument);
}
"""


@pytest.fixture(scope="session")
def failing_system(tmp_path_factory):
    """Returns the library. Its functions fail as the variables NO_LOCKS, NO_LINKS, THREADS and PROCESSES say."""
    folder = tmp_path_factory.mktemp("preload")
    (folder / "failing.c").write_text(FAILING)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "failing.so", folder / "failing.c", "-ldl"], check=True)
    return folder / "failing.so"
