/* Shared by the files of pawl._core.Session. */
#ifndef PAWL_CORE_SESSION_H
#define PAWL_CORE_SESSION_H

#include "_core.h"

/* A rank's connection to its agent. The GIL guards ckpt and users. */
struct session {
	PyObject_HEAD struct pawl_ckpt *ckpt; /* NULL once closed */
	int users;                            /* calls in progress without the GIL */
	/* Callable (session, id) -> changed (part, storage), or None; NULL: none. */
	PyObject *find_changed;
};

/* Counts a call into libpawl: any number may be in progress, but none may begin after close did.
 * Returns NULL with an exception set if the session is closed. Both are called with the GIL. */
struct pawl_ckpt *core_session_enter(struct session *self);
void core_session_leave(struct session *self);

/* ---- _core_save.c: methods that make a save ---- */

PyObject *core_session_save(struct session *self, PyObject *args);
PyObject *core_session_save_tag(struct session *self, PyObject *args);
PyObject *core_session_begin(struct session *self, PyObject *args);
PyObject *core_session_add(struct session *self, PyObject *item);
PyObject *core_session_commit(struct session *self, PyObject *unused);
PyObject *core_session_drop(struct session *self, PyObject *arg);
PyObject *core_session_abandon(struct session *self, PyObject *arg);
PyObject *core_session_fence(struct session *self, PyObject *arg);
PyObject *core_session_announce(struct session *self, PyObject *arg);
PyObject *core_session_withdraw(struct session *self, PyObject *args);

#endif
