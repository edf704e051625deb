/* Hosts restore the same checkpoint, or none: see hosts.h. */
#include "agent/persist/hosts.h"
#include "ipc/proto.h"

#include "base/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OFFERS_MAX 16 /* runs in a row that may end before an offer, at most */

/* Reads a member's word in a round. PAWL_ENOENT: the member has gone past the round, which no host
 * does here. */
static int read_word(struct hosts *hosts, char kind, uint64_t n, uint32_t m, struct note_word *word,
	struct pawl_err *err)
{
	void *bytes;
	size_t len_bytes;
	int rv = hosts_read(hosts, kind, n, m, &bytes, &len_bytes, err);

	if (rv == 0) {
		rv = note_get_word(bytes, len_bytes, word, err);
		free(bytes);
	}
	return rv;
}

/* Checks that all hosts ask for the same as rank 0's host. */
static int check_asked(struct hosts *hosts, const struct note_word *own, struct pawl_err *err)
{
	struct note_word word;
	int rv = 0;

	for (uint32_t m = 0; m < hosts->run.members_n && rv == 0; m++) {
		rv = read_word(hosts, 'r', hosts->restores, m, &word, err);
		if (rv == 0 && (word.has_step != own->has_step || word.asked != own->asked)) {
			rv = pawl_err_set(err, PAWL_EMISMATCH,
				"rank %u restores another step than rank 0",
				hosts->run.members[m].first);
		}
	}
	return rv;
}

/* Rank 0's host: once all have asked, says what is offered. */
static int make_offer(struct hosts *hosts, struct note_word *word, hosts_find_fn *find, void *user,
	struct pawl_err *err)
{
	struct pawl_err why = {0};
	int rv = hosts_gather(hosts, 'r', hosts->restores, err);

	if (rv != 0) {
		return rv;
	}
	rv = check_asked(hosts, word, &why);
	if (rv == 0) {
		word->code = find(user, word);
	} else {
		word->code = rv;
		snprintf(word->why, sizeof(word->why), "%.255s", why.msg);
	}
	note_put_word(&hosts->out, word);
	rv = hosts_say(hosts, 'r', hosts->restores, true, err);
	if (rv == 0 && word->code != 0) {
		rv = pawl_err_set(err, word->code, "%s", word->why);
	}
	return rv;
}

static int offer_once(struct hosts *hosts, struct note_word *word, hosts_find_fn *find, void *user,
	struct pawl_err *err)
{
	int rv = hosts_enter(hosts, err);

	if (rv == 0 && hosts_lead(hosts)) {
		rv = make_offer(hosts, word, find, user, err);
	} else if (rv == 0) {
		note_put_word(&hosts->out, word);
		rv = hosts_say(hosts, 'r', hosts->restores, false, err);
		rv = rv == 0 ? hosts_hear(hosts, 'r', hosts->restores, word, err) : rv;
	}
	return rv;
}

int hosts_offer(struct hosts *hosts, struct note_word *word, hosts_find_fn *find, void *user,
	struct pawl_err *err)
{
	const struct note_word asked = *word;
	int rv = PAWL_EPEER;

	for (int i = 0; i < OFFERS_MAX && rv == PAWL_EPEER; i++) {
		*word = asked;
		rv = offer_once(hosts, word, find, user, err);
		if (rv == PAWL_EPEER && hosts->used) {
			return rv;
		}
	}
	if (rv == 0 && !word->found) { /* the round is over: there is nothing to vote on */
		hosts->restores++;
		hosts->used = true;
	} else if (rv != 0 && word->code != 0) {
		hosts->restores++; /* all hosts were told */
	}
	return rv;
}

/* Rank 0's host: puts the worst verdict of all hosts' ranks into word. */
static int count_votes(struct hosts *hosts, struct note_word *word, struct pawl_err *err)
{
	struct note_word other;
	int rv = hosts_gather(hosts, 'v', hosts->restores, err);

	for (uint32_t m = 0; m < hosts->run.members_n && rv == 0; m++) {
		rv = read_word(hosts, 'v', hosts->restores, m, &other, err);
		if (rv == 0 && other.verdict > word->verdict) {
			word->verdict =
				other.verdict > VERDICT_REFUSED ? VERDICT_REFUSED : other.verdict;
			memcpy(word->why, other.why, sizeof(word->why));
		}
	}
	return rv;
}

int hosts_vote(struct hosts *hosts, struct note_word *word, hosts_condemn_fn *condemn, void *user,
	struct pawl_err *err)
{
	int rv = 0;

	if (!hosts->in) {
		return pawl_err_set(err, PAWL_EPEER, "a host began anew");
	}
	if (hosts_lead(hosts)) {
		rv = count_votes(hosts, word, err);
		if (rv == 0 && word->verdict == VERDICT_RETRY) {
			condemn(user, word->why);
		}
		note_put_word(&hosts->out, word);
		rv = rv == 0 ? hosts_say(hosts, 'v', hosts->restores, true, err) : rv;
	} else {
		note_put_word(&hosts->out, word);
		rv = hosts_say(hosts, 'v', hosts->restores, false, err);
		rv = rv == 0 ? hosts_hear(hosts, 'v', hosts->restores, word, err) : rv;
	}
	if (rv == 0) {
		hosts_forget(hosts, 'r', hosts->restores);
		hosts_forget(hosts, 'v', hosts->restores);
		hosts->restores++;
		hosts->used = hosts->used || word->verdict == VERDICT_GO;
	}
	return rv;
}
