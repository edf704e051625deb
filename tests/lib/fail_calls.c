/* Makes calls into the C library fail. See fail_calls.h. */
#include "fail_calls.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct fail_calls *fail_calls;

static struct fail_calls *map_shared(int fd)
{
	void *at = mmap(NULL, sizeof(struct fail_calls), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return at == MAP_FAILED ? NULL : at;
}

__attribute__((constructor)) static void find_shared(void)
{
	const char *fd = getenv(FAIL_CALLS_ENV);

	if (fd != NULL) {
		fail_calls = map_shared((int)strtol(fd, NULL, 10));
	}
}

struct fail_calls *fail_calls_share(void)
{
	int fd = memfd_create("fail-calls", 0);
	char text[16];

	if (fd < 0 || ftruncate(fd, sizeof(struct fail_calls)) != 0) {
		return NULL;
	}
	snprintf(text, sizeof(text), "%d", fd);
	setenv(FAIL_CALLS_ENV, text, 1);
	return map_shared(fd);
}

void fail_calls_arm(struct fail_calls *calls, long nth)
{
	calls->passed = 0;
	calls->name[0] = '\0';
	calls->nth = nth;
}

long fail_calls_disarm(struct fail_calls *calls)
{
	calls->nth = 0;
	return calls->passed;
}

static bool fails(const char *name, int sys)
{
	long nth = fail_calls != NULL ? (long)fail_calls->nth : 0;

	if (nth == 0 || ++fail_calls->passed != nth) {
		return false;
	}
	snprintf(fail_calls->name, sizeof(fail_calls->name), "%s", name);
	errno = sys;
	return true;
}

/* type, name, result on failure, errno, parameters, arguments */
#define CALLS(X)                                                                                   \
	X(void *, malloc, NULL, ENOMEM, (size_t n), (n))                                           \
	X(void *, calloc, NULL, ENOMEM, (size_t n, size_t size), (n, size))                        \
	X(void *, realloc, NULL, ENOMEM, (void *old, size_t size), (old, size))                    \
	X(char *, strdup, NULL, ENOMEM, (const char *text), (text))                                \
	X(char *, realpath, NULL, EACCES, (const char *path, char *out), (path, out))              \
	X(char *, getcwd, NULL, ENOENT, (char *out, size_t cap), (out, cap))                       \
	X(int, mkdir, -1, EACCES, (const char *path, mode_t mode), (path, mode))                   \
	X(int, mkdirat, -1, EACCES, (int fd, const char *path, mode_t mode), (fd, path, mode))     \
	X(int, lstat64, -1, EACCES, (const char *path, void *st), (path, st))                      \
	X(int, stat64, -1, EACCES, (const char *path, void *st), (path, st))                       \
	X(int, fstat64, -1, EIO, (int fd, void *st), (fd, st))                                     \
	X(int, fstatat64, -1, EACCES, (int fd, const char *path, void *st, int flags),             \
		(fd, path, st, flags))                                                             \
	X(int, access, -1, EACCES, (const char *path, int mode), (path, mode))                     \
	X(int, flock, -1, ENOLCK, (int fd, int how), (fd, how))                                    \
	X(int, ftruncate64, -1, ENOSPC, (int fd, off_t size), (fd, size))                          \
	X(int, fallocate64, -1, ENOSPC, (int fd, int mode, off_t at, off_t size),                  \
		(fd, mode, at, size))                                                              \
	X(void *, mmap64, MAP_FAILED, ENOMEM,                                                      \
		(void *at, size_t size, int prot, int flags, int fd, off_t past),                  \
		(at, size, prot, flags, fd, past))                                                 \
	X(int, memfd_create, -1, EMFILE, (const char *name, unsigned flags), (name, flags))        \
	X(int, pipe2, -1, EMFILE, (int ends[2], int flags), (ends, flags))                         \
	X(int, dup2, -1, EMFILE, (int from, int to), (from, to))                                   \
	X(int, socket, -1, EMFILE, (int domain, int type, int protocol), (domain, type, protocol)) \
	X(int, socketpair, -1, EMFILE, (int domain, int type, int protocol, int ends[2]),          \
		(domain, type, protocol, ends))                                                    \
	X(int, bind, -1, EADDRINUSE, (int fd, const struct sockaddr *at, socklen_t n),             \
		(fd, at, n))                                                                       \
	X(int, connect, -1, ECONNREFUSED, (int fd, const struct sockaddr *at, socklen_t n),        \
		(fd, at, n))                                                                       \
	X(int, listen, -1, EADDRINUSE, (int fd, int backlog), (fd, backlog))                       \
	X(int, accept4, -1, EMFILE, (int fd, struct sockaddr *at, socklen_t *n, int flags),        \
		(fd, at, n, flags))                                                                \
	X(int, epoll_create1, -1, EMFILE, (int flags), (flags))                                    \
	X(int, eventfd, -1, EMFILE, (unsigned first, int flags), (first, flags))                   \
	X(int, signalfd, -1, EMFILE, (int fd, const void *set, int flags), (fd, set, flags))       \
	X(int, fork, -1, EAGAIN, (void), ())                                                       \
	X(DIR *, fdopendir, NULL, ENOMEM, (int fd), (fd))                                          \
	X(DIR *, opendir, NULL, EACCES, (const char *path), (path))                                \
	X(ssize_t, read, -1, EIO, (int fd, void *bytes, size_t n), (fd, bytes, n))                 \
	X(ssize_t, write, -1, ENOSPC, (int fd, const void *bytes, size_t n), (fd, bytes, n))       \
	X(ssize_t, pread64, -1, EIO, (int fd, void *bytes, size_t n, off_t at),                    \
		(fd, bytes, n, at))                                                                \
	X(ssize_t, pwrite64, -1, ENOSPC, (int fd, const void *bytes, size_t n, off_t at),          \
		(fd, bytes, n, at))                                                                \
	X(ssize_t, sendmsg, -1, EPIPE, (int fd, const struct msghdr *msg, int flags),              \
		(fd, msg, flags))                                                                  \
	X(ssize_t, recvmsg, -1, ECONNRESET, (int fd, struct msghdr *msg, int flags),               \
		(fd, msg, flags))                                                                  \
	X(int, fsync, -1, EIO, (int fd), (fd))                                                     \
	X(int, rename, -1, EACCES, (const char *from, const char *to), (from, to))                 \
	X(int, renameat2, -1, EACCES,                                                              \
		(int fd, const char *from, int other, const char *to, unsigned flags),             \
		(fd, from, other, to, flags))                                                      \
	X(int, unlink, -1, EACCES, (const char *path), (path))

#define X(type, name, failed, sys, parameters, arguments)                                          \
	type __real_##name parameters;                                                             \
	type __wrap_##name parameters;                                                             \
	type __wrap_##name parameters                                                              \
	{                                                                                          \
		return fails(#name, sys) ? (failed) : __real_##name arguments;                     \
	}
CALLS(X)
#undef X

/* Calls that return their error, and calls with a variable number of arguments. */
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
	void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
	void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
	void *user)
{
	return fails("pthread_create", EAGAIN) ? EAGAIN
					       : __real_pthread_create(thread, attr, run, user);
}

/* Forgetting a watched descriptor cannot fail. */
int __real_epoll_ctl(int fd, int how, int other, struct epoll_event *event);
int __wrap_epoll_ctl(int fd, int how, int other, struct epoll_event *event);
int __wrap_epoll_ctl(int fd, int how, int other, struct epoll_event *event)
{
	return how != EPOLL_CTL_DEL && fails("epoll_ctl", ENOSPC)
		? -1
		: __real_epoll_ctl(fd, how, other, event);
}

int __real_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
	const posix_spawnattr_t *attr, char *const *argv, char *const *env);
int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
	const posix_spawnattr_t *attr, char *const *argv, char *const *env);
int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files,
	const posix_spawnattr_t *attr, char *const *argv, char *const *env)
{
	return fails("posix_spawn", EAGAIN) ? EAGAIN
					    : __real_posix_spawn(pid, path, files, attr, argv, env);
}

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
	va_list args;
	unsigned mode;

	va_start(args, flags);
	mode = (flags & O_CREAT) != 0 ? va_arg(args, unsigned) : 0;
	va_end(args);
	return fails("open", EMFILE) ? -1 : __real_open64(path, flags, mode);
}

int __real_openat64(int fd, const char *path, int flags, ...);
int __wrap_openat64(int fd, const char *path, int flags, ...);
int __wrap_openat64(int fd, const char *path, int flags, ...)
{
	va_list args;
	unsigned mode;

	va_start(args, flags);
	mode = (flags & O_CREAT) != 0 ? va_arg(args, unsigned) : 0;
	va_end(args);
	return fails("openat", EMFILE) ? -1 : __real_openat64(fd, path, flags, mode);
}

int __real_vasprintf(char **out, const char *format, va_list args);
int __wrap_vasprintf(char **out, const char *format, va_list args);
int __wrap_vasprintf(char **out, const char *format, va_list args)
{
	return fails("vasprintf", ENOMEM) ? -1 : __real_vasprintf(out, format, args);
}
