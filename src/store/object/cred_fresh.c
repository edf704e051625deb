/* How credentials that end are kept fresh: see cred_fresh.h. */
#include "store/object/cred_fresh.h"

#include "base/err.h"
#include "base/log.h"

#define REFRESH_S   300 /* how long before their end the source is asked */
#define ASK_AGAIN_S 5   /* at least this long after a try, while the old ones work */

static bool is_valid(const struct cred_fresh *fresh, int64_t now_s)
{
	return fresh->is_there && !fresh->is_refused && (fresh->end_s == 0 || now_s < fresh->end_s);
}

bool cred_fresh_is_due(const struct cred_fresh *fresh, int64_t now_s)
{
	if (!is_valid(fresh, now_s)) {
		return true;
	}
	return fresh->end_s != 0 && now_s >= fresh->end_s - REFRESH_S &&
		(now_s < fresh->asked_s || now_s - fresh->asked_s >= ASK_AGAIN_S);
}

void cred_fresh_renew(struct cred_fresh *fresh, int64_t end_s)
{
	fresh->end_s = end_s;
	fresh->is_there = true;
	fresh->is_refused = false;
	fresh->is_warned = false;
}

int cred_fresh_fail(struct cred_fresh *fresh, int rv, int64_t now_s, const struct pawl_err *why,
	struct pawl_err *err)
{
	if (!is_valid(fresh, now_s)) {
		return pawl_err_set(err, rv, "%s", why->msg);
	}
	if (!fresh->is_warned) {
		log_line(LOG_WARNING, "no new credentials, and the old ones end in %lld s: %s",
			(long long)(fresh->end_s - now_s), why->msg);
		fresh->is_warned = true;
	}
	return 0;
}
