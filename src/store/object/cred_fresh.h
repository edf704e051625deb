/* How credentials that end are kept fresh, whatever they are: when their source is asked again, and
 * whether the old ones may still be used. Belongs to the thread of the credentials. */
#ifndef STORE_OBJECT_CRED_FRESH_H
#define STORE_OBJECT_CRED_FRESH_H

#include <stdbool.h>
#include <stdint.h>

struct pawl_err;

/* Zeroed: there are no credentials yet. Times are in seconds since 1970. */
struct cred_fresh {
	int64_t end_s;   /* end of the credentials in use; 0: they do not end */
	int64_t asked_s; /* when the source was asked last */
	bool is_there;   /* there are credentials; they may have ended */
	bool is_refused; /* the service has refused them */
	bool is_warned;  /* the log has that no new ones can be had */
};

/* Returns whether the source is to be asked: there are no usable credentials, or they end within
 * 5 minutes and the last try was 5 s ago or more. A clock that was set back does not delay it. */
bool cred_fresh_is_due(const struct cred_fresh *fresh, int64_t now_s);
/* New credentials are in use. */
void cred_fresh_renew(struct cred_fresh *fresh, int64_t end_s);
/* Returns what the error of a refresh (why, its code rv) comes to: 0 if the old credentials can
 * still be used, which is logged once, else rv, with err filled. */
int cred_fresh_fail(struct cred_fresh *fresh, int rv, int64_t now_s, const struct pawl_err *why,
	struct pawl_err *err);

#endif
