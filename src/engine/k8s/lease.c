/* See lease.h. */
#include "engine/k8s/lease.h"

#include "base/date.h"
#include "base/err.h"
#include "base/units.h"
#include "engine/k8s/kube_json.h"

#include <stdio.h>
#include <string.h>

#define LOOKS        6 /* a Lease is looked at, and renewed, so often in its duration */
#define DURATION_MAX 3600

int64_t lease_good_until(const struct lease *lease)
{
	return lease->renewed_ns + lease->duration_ns / 3 * 2;
}

/* Returns when a holder that says nothing counts as gone. */
static int64_t gone_ns(const struct lease *lease)
{
	return lease->holder[0] == '\0' ? lease->seen_ns : lease->seen_ns + lease->holder_ns;
}

enum lease_step lease_step(struct lease *lease, int64_t now_ns)
{
	if (lease->state == LEASE_HELD && now_ns >= lease_good_until(lease)) {
		lease->state = LEASE_LOST;
	}
	if (lease->state == LEASE_LOST) {
		lease->due_ns = INT64_MAX;
		return LEASE_NOTHING;
	}
	if (now_ns < lease->due_ns) {
		return LEASE_NOTHING;
	}
	if (lease->missing) {
		return LEASE_CREATE;
	}
	if (lease->known && (lease->state == LEASE_HELD || now_ns >= gone_ns(lease))) {
		return LEASE_WRITE;
	}
	return LEASE_READ;
}

json_t *lease_body(const struct lease *lease, const char *name, const char *name_space,
	int64_t wall_ns, bool release)
{
	char now[DATE_TEXT_MAX];
	json_int_t seconds = release ? 1 : lease->duration_ns / NS_PER_S;
	json_int_t transitions = lease->transitions + (lease->state != LEASE_HELD && lease->known);
	json_t *body;

	date_write(wall_ns, now);
	body = json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:I, s:s, s:I}}", "apiVersion",
		"coordination.k8s.io/v1", "kind", "Lease", "metadata", "name", name, "namespace",
		name_space, "spec", "holderIdentity", release ? "" : lease->self,
		"leaseDurationSeconds", seconds, "renewTime", now, "leaseTransitions", transitions);
	if (body != NULL && lease->known) {
		json_object_set_new(json_object_get(body, "metadata"), "resourceVersion",
			json_string(lease->version));
	}
	return body;
}

/* Takes what the server has. */
static void take(struct lease *lease, const json_t *object, int64_t now_ns)
{
	const json_t *spec = json_object_get(object, "spec");
	const char *version =
		kube_json_text(json_object_get(object, "metadata"), "resourceVersion");
	json_int_t seconds = json_integer_value(json_object_get(spec, "leaseDurationSeconds"));

	if (!lease->known || strcmp(lease->version, version) != 0) {
		lease->seen_ns = now_ns;
	}
	lease->known = true;
	lease->missing = false;
	snprintf(lease->version, sizeof(lease->version), "%s", version);
	snprintf(lease->holder, sizeof(lease->holder), "%s",
		kube_json_text(spec, "holderIdentity"));
	lease->transitions = json_integer_value(json_object_get(spec, "leaseTransitions"));
	lease->holder_ns =
		seconds > 0 && seconds <= DURATION_MAX ? seconds * NS_PER_S : lease->duration_ns;
}

void lease_answered(struct lease *lease, enum lease_step step, int rv, const json_t *object,
	int64_t sent_ns, int64_t now_ns)
{
	bool wrote = step == LEASE_CREATE || step == LEASE_WRITE;

	lease->due_ns = now_ns + lease->duration_ns / LOOKS;
	if (rv == 0) {
		take(lease, object, now_ns);
	} else {
		lease->missing = rv == PAWL_ENOENT;
	}
	if (lease->state == LEASE_LOST) {
		return;
	}
	if (rv == 0 && strcmp(lease->holder, lease->self) == 0) {
		/* A write whose answer was lost is seen by the next look. */
		lease->renewed_ns = wrote ? sent_ns : lease->renewed_ns;
		lease->state = wrote ? LEASE_HELD : lease->state;
	} else if ((rv == 0 || rv == PAWL_ENOENT) && lease->state == LEASE_HELD) {
		lease->state = LEASE_LOST; /* somebody else has it, or has removed it */
	} else if (rv == PAWL_EBUSY || rv == PAWL_EEXIST || rv == PAWL_ENOENT) {
		/* Look, or make one, at once. A conflict may be with our own write, whose answer
		 * was lost. */
		lease->due_ns = now_ns;
		lease->known = false;
	}
	if (lease->state == LEASE_WAITS && lease->known && gone_ns(lease) < lease->due_ns) {
		lease->due_ns = gone_ns(lease) > now_ns ? gone_ns(lease) : now_ns;
	}
}
