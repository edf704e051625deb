/*
 * TLS 1.3 with a pre-shared key that is derived from the job's token, for the connections between
 * nodes and between agents. Both ends prove that they know the token, and it is never sent. Without
 * a token the key is publicly known: an eavesdropper learns nothing, but any process that reaches
 * the port can join.
 *
 * Sockets are non-blocking. The sessions of one struct tls may be opened and used by different
 * threads, each session by one at a time.
 */
#ifndef IO_TLS_H
#define IO_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tls;         /* shared by all connections */
struct tls_session; /* one connection */
struct pawl_err;

#define TLS_TOKEN_MIN 16u /* bytes of a token: fewer could be guessed */
#define TLS_TOKEN_MAX 4096u

/* Derives the key from token; NULL: there is no token. label ties the key to one use of the token:
 * the ends of a connection have the same. PAWL_ENOMEM, PAWL_EIO. */
int tls_open(struct tls **out, const char *token, const char *label, struct pawl_err *err);
void tls_close(struct tls *tls); /* no session may be open; NULL is fine */

/* Opens a session on a socket that the caller owns; accept: the other end connected. Returns NULL
 * if memory is short. */
struct tls_session *tls_session_open(struct tls *tls, int fd, bool accept);
void tls_session_close(struct tls_session *session); /* NULL is fine */
/* Advances the handshake. Returns 1 when it is done, 0 while it waits for the socket (to write if
 * *write, else to read), or PAWL_EPEER, with the reason in err. */
int tls_session_handshake(struct tls_session *session, bool *write, struct pawl_err *err);
/* Return the number of bytes; 0 if none can be transferred now (*write: until the socket can be
 * written to); or PAWL_EPEER, with the reason in err. A read may leave bytes in the session: before
 * the caller waits for the socket, it reads until 0 is returned. A write that has returned 0 is
 * repeated with the same bytes, and maybe more behind them, before anything else is written. */
ssize_t tls_session_read(struct tls_session *session, void *bytes, size_t len_bytes, bool *write,
	struct pawl_err *err);
ssize_t tls_session_write(struct tls_session *session, const void *bytes, size_t len_bytes,
	bool *write, struct pawl_err *err);
void tls_session_end(
	struct tls_session *session); /* tells the other end that nothing more will be sent */

#endif
