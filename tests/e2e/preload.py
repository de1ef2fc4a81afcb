"""Compiles libraries for LD_PRELOAD that make functions of the system fail, or that kill the process after a change of a file."""

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


KILLING = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name, ...) static __typeof__(name)* real; if (!real) *(void**)&real = dlsym(RTLD_NEXT, #name)

/* KILL_IN=PART:PART: the files whose path has one of these parts. */
static int is_watched(const char* path) {
  const char* part = getenv("KILL_IN");
  while (part && *part) {
    const char* end = strchrnul(part, ':');
    if (end > part && memmem(path, strlen(path), part, (size_t)(end - part))) return 1;
    part = *end ? end + 1 : end;
  }
  return 0;
}

static const char* path_of(int file, char path[PATH_MAX]) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, PATH_MAX - 1);
  path[length < 0 ? 0 : length] = 0;
  return path;
}

/* KILL_AFTER=N: the process is killed after N changes of these files. KILL_LOG=FILE: gets a line for each of them. */
static void changed(const char* how, const char* path) {
  static atomic_int changes;
  static ssize_t (*put)(int, const void*, size_t);
  if (!is_watched(path)) return;
  const char *last = getenv("KILL_AFTER"), *log = getenv("KILL_LOG");
  const int change = atomic_fetch_add(&changes, 1) + 1;
  if (log) {
    if (!put) *(void**)&put = dlsym(RTLD_NEXT, "write");
    char line[PATH_MAX + 64];
    const int length = snprintf(line, sizeof line, "%d %s %s\n", change, how, path);
    const int file = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    put(file, line, (size_t)length);
    close(file);
  }
  if (last && change == atoi(last)) {
    kill(getpid(), SIGKILL);
    pause();
  }
}

/* A write is two changes: the process may die in the middle of it. */
ssize_t write(int file, const void* bytes, size_t count) {
  REAL(write);
  char path[PATH_MAX];
  if (count < 2 || !getenv("KILL_IN") || !is_watched(path_of(file, path))) return real(file, bytes, count);
  const ssize_t first = real(file, bytes, count / 2);
  if (first < 0) return first;
  changed("half of a write to", path);
  const ssize_t second = real(file, (const char*)bytes + first, count - (size_t)first);
  if (second < 0) return first;
  changed("write to", path);
  return first + second;
}

#define PWRITE(name, offset_type) \
  ssize_t name(int file, const void* bytes, size_t count, offset_type at) { \
    REAL(name); \
    char path[PATH_MAX]; \
    const ssize_t done = real(file, bytes, count, at); \
    if (getenv("KILL_IN")) changed("write to", path_of(file, path)); \
    return done; \
  }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define TRUNCATE(name, offset_type) \
  int name(int file, offset_type size) { \
    REAL(name); \
    char path[PATH_MAX]; \
    const int code = real(file, size); \
    if (getenv("KILL_IN")) changed("cut of", path_of(file, path)); \
    return code; \
  }
TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define OPEN(name) \
  int name(const char* path, int flags, ...) { \
    REAL(name); \
    va_list list; \
    va_start(list, flags); \
    const mode_t mode = (flags & O_CREAT) ? va_arg(list, mode_t) : 0; \
    va_end(list); \
    const int is_new = (flags & O_CREAT) && getenv("KILL_IN") && access(path, F_OK) != 0; \
    const int file = real(path, flags, mode); \
    if (is_new && file >= 0) changed("creation of", path); \
    return file; \
  }
OPEN(open)
OPEN(open64)

#define ON_PATH(name, how) \
  int name(const char* path) { \
    REAL(name); \
    const int code = real(path); \
    if (code == 0) changed(how, path); \
    return code; \
  }
ON_PATH(unlink, "removal of")
ON_PATH(rmdir, "removal of")
ON_PATH(remove, "removal of")

int unlinkat(int folder, const char* name, int flags) {
  REAL(unlinkat);
  char path[PATH_MAX], whole[2 * PATH_MAX];
  if (folder == AT_FDCWD) snprintf(whole, sizeof whole, "%s", name);
  else snprintf(whole, sizeof whole, "%s/%s", path_of(folder, path), name);
  const int code = real(folder, name, flags);
  if (code == 0) changed("removal of", whole);
  return code;
}

int rename(const char* from, const char* to) {
  REAL(rename);
  const int code = real(from, to);
  if (code == 0) changed("rename to", to);
  return code;
}

int mkdir(const char* path, mode_t mode) {
  REAL(mkdir);
  const int code = real(path, mode);
  if (code == 0) changed("creation of", path);
  return code;
}
"""


@pytest.fixture(scope="session")
def killing_system(tmp_path_factory):
    """Returns a function of a number of changes and parts of paths. It gives the words that start a program which is killed after so
    many changes of files whose path has one of the parts; 0: never.
    """
    folder = tmp_path_factory.mktemp("preload")
    (folder / "killing.c").write_text(KILLING)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "killing.so", folder / "killing.c", "-ldl"], check=True)

    def words(changes, *parts):
        return ["env", f"LD_PRELOAD={folder / 'killing.so'}", f"KILL_IN={':'.join(map(str, parts))}", f"KILL_AFTER={changes}"]
    return words
