/* syncmark: a power cut without root. Preloaded into a process, it keeps what a disk would still hold after one.

     Y1  For each regular file below SYNCMARK_ROOT it keeps, in SYNCMARK_DIR, the size at its last successful f(data)sync (`<inode>.size`) and an
         undo log of what was written since (`<inode>.<n>.undo`): the old bytes of each range, noted before the range is overwritten.
     Y2  The undo log is turned over before a sync begins and dropped after it succeeded: what is written during a sync counts as not synced.
     Y3  A record is complete before the write that it undoes begins: killed at any instruction, the marks lead to a state that a cut could leave.
     Y4  What was in a file when the process first wrote to it counts as synced.

   A record is three 64-bit numbers (offset, length written, old bytes kept) and the old bytes. The reader is cut.ts, which puts back all of it, or
   block by block as a coin falls: a disk writes whole blocks, in any order. Directory entries are taken to be durable.

   gcc -O2 -shared -fPIC -pthread -o syncmark.so syncmark.c -ldl */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES_MAX 256
#define PATH_BYTES 4096

struct file {
  ino_t inode;
  uint64_t oldest, newest; /* numbers of the undo logs that are in use */
  int undo;                /* fd of the newest undo log, or -1 */
};

static struct file files[FILES_MAX];
static int known = 0;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *why) {
  dprintf(2, "syncmark: %s\n", why);
  _exit(99);
}

static void *real(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) die(name);
  return found;
}

#define REAL(type, name) \
  static type call = NULL; \
  if (!call) call = (type)real(name)

typedef ssize_t (*write_fn)(int, const void *, size_t);
typedef ssize_t (*pwrite_fn)(int, const void *, size_t, off_t);
typedef int (*sync_fn)(int);
typedef int (*truncate_fn)(int, off_t);
typedef int (*unlink_fn)(const char *);

static void put(int fd, const void *bytes, size_t count, off_t at) {
  REAL(pwrite_fn, "pwrite64");
  if (call(fd, bytes, count, at) != (ssize_t)count) die("a mark can't be written");
}

static void append(int fd, const void *bytes, size_t count) {
  REAL(write_fn, "write");
  if (call(fd, bytes, count) != (ssize_t)count) die("an undo record can't be written");
}

static void mark_path(char *path, ino_t inode, const char *rest) {
  snprintf(path, PATH_BYTES, "%s/%lu.%s", getenv("SYNCMARK_DIR"), (unsigned long)inode, rest);
}

static void mark_size(ino_t inode, off_t size) {
  char path[PATH_BYTES], text[32];
  mark_path(path, inode, "size");
  int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) die("a size mark can't be opened");
  put(fd, text, snprintf(text, sizeof text, "%020lld", (long long)size), 0);
  close(fd);
}

static void undo_path(char *path, ino_t inode, uint64_t number) {
  char rest[40];
  snprintf(rest, sizeof rest, "%llu.undo", (unsigned long long)number);
  mark_path(path, inode, rest);
}

/* Is this fd a regular file below the root? */
static int is_marked(int fd, struct stat *st) {
  const char *root = getenv("SYNCMARK_ROOT");
  if (!root || !getenv("SYNCMARK_DIR") || fstat(fd, st) != 0 || !S_ISREG(st->st_mode)) return 0;
  char link[64], path[PATH_BYTES];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return strncmp(path, root, strlen(root)) == 0;
}

static struct file *find(const struct stat *st) {
  for (int i = 0; i < known; i++)
    if (files[i].inode == st->st_ino) return &files[i];
  if (known == FILES_MAX) die("too many files");
  files[known] = (struct file){.inode = st->st_ino, .oldest = 0, .newest = 0, .undo = -1};
  mark_size(st->st_ino, st->st_size); /* Y4 */
  return &files[known++];
}

/* Keeps the old bytes of a range that is about to change. Y3 */
static void keep(int fd, const struct stat *st, off_t offset, size_t count) {
  struct file *file = find(st);
  if (file->undo < 0) {
    char path[PATH_BYTES];
    undo_path(path, file->inode, file->newest);
    file->undo = open(path, O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    if (file->undo < 0) die("an undo log can't be opened");
  }
  uint64_t old = offset >= st->st_size ? 0 : (uint64_t)(st->st_size - offset);
  if (old > count) old = count;
  uint64_t head[3] = {(uint64_t)offset, count, old};
  char *record = malloc(sizeof head + old);
  if (!record) die("out of memory");
  memcpy(record, head, sizeof head);
  if (old > 0) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int reader = open(link, O_RDONLY | O_CLOEXEC);
    if (reader < 0 || pread(reader, record + sizeof head, old, offset) != (ssize_t)old) die("old bytes can't be read");
    close(reader);
  }
  append(file->undo, record, sizeof head + old);
  free(record);
}

static off_t place_of(int fd, const struct stat *st) {
  return fcntl(fd, F_GETFL) & O_APPEND ? st->st_size : lseek(fd, 0, SEEK_CUR);
}

/* The lock is held over the write itself, so that a record and its write are one step for everyone else. */
ssize_t write(int fd, const void *bytes, size_t count) {
  REAL(write_fn, "write");
  struct stat st;
  if (!is_marked(fd, &st)) return call(fd, bytes, count);
  pthread_mutex_lock(&mutex);
  fstat(fd, &st);
  keep(fd, &st, place_of(fd, &st), count);
  ssize_t written = call(fd, bytes, count);
  pthread_mutex_unlock(&mutex);
  return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
  typedef ssize_t (*fn)(int, const struct iovec *, int);
  REAL(fn, "writev");
  struct stat st;
  if (!is_marked(fd, &st)) return call(fd, parts, count);
  size_t sum = 0;
  for (int i = 0; i < count; i++) sum += parts[i].iov_len;
  pthread_mutex_lock(&mutex);
  fstat(fd, &st);
  keep(fd, &st, place_of(fd, &st), sum);
  ssize_t written = call(fd, parts, count);
  pthread_mutex_unlock(&mutex);
  return written;
}

ssize_t pwrite64(int fd, const void *bytes, size_t count, off_t offset) {
  REAL(pwrite_fn, "pwrite64");
  struct stat st;
  if (!is_marked(fd, &st)) return call(fd, bytes, count, offset);
  pthread_mutex_lock(&mutex);
  fstat(fd, &st);
  keep(fd, &st, offset, count);
  ssize_t written = call(fd, bytes, count, offset);
  pthread_mutex_unlock(&mutex);
  return written;
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return pwrite64(fd, bytes, count, offset); }

int ftruncate64(int fd, off_t size) {
  REAL(truncate_fn, "ftruncate64");
  struct stat st;
  if (!is_marked(fd, &st)) return call(fd, size);
  pthread_mutex_lock(&mutex);
  fstat(fd, &st);
  if (size < st.st_size) keep(fd, &st, size, (size_t)(st.st_size - size));
  else find(&st);
  int result = call(fd, size);
  pthread_mutex_unlock(&mutex);
  return result;
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int synced(int fd, sync_fn call) {
  struct stat st;
  if (!is_marked(fd, &st)) return call(fd);
  pthread_mutex_lock(&mutex);
  fstat(fd, &st);
  struct file *file = find(&st);
  ino_t inode = file->inode;
  uint64_t turned = file->newest++; /* Y2 */
  if (file->undo >= 0) close(file->undo);
  file->undo = -1;
  pthread_mutex_unlock(&mutex);

  int result = call(fd);
  if (result != 0) return result;

  pthread_mutex_lock(&mutex);
  for (int i = 0; i < known; i++) {
    if (files[i].inode != inode || files[i].oldest > turned) continue; /* A later sync was quicker. */
    mark_size(inode, st.st_size);
    for (uint64_t number = turned + 1; number-- > files[i].oldest;) {
      REAL(unlink_fn, "unlink");
      char path[PATH_BYTES];
      undo_path(path, inode, number);
      call(path);
    }
    files[i].oldest = turned + 1;
  }
  pthread_mutex_unlock(&mutex);
  return result;
}

int fsync(int fd) {
  REAL(sync_fn, "fsync");
  return synced(fd, call);
}
int fdatasync(int fd) {
  REAL(sync_fn, "fdatasync");
  return synced(fd, call);
}

/* A removed file's inode may be given to a new one: its marks go with it. */
int unlink(const char *path) {
  REAL(unlink_fn, "unlink");
  struct stat st;
  int isFile = getenv("SYNCMARK_DIR") && lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1;
  int result = call(path);
  if (result != 0 || !isFile) return result;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < known; i++) {
    if (files[i].inode != st.st_ino) continue;
    char mark[PATH_BYTES];
    if (files[i].undo >= 0) close(files[i].undo);
    for (uint64_t number = files[i].oldest; number <= files[i].newest; number++) {
      undo_path(mark, st.st_ino, number);
      call(mark);
    }
    mark_path(mark, st.st_ino, "size");
    call(mark);
    files[i] = files[--known];
    break;
  }
  pthread_mutex_unlock(&mutex);
  return result;
}
