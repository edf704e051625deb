/*
 * The ledger of one root: which save is in which generation of the memory tier, and what may happen
 * to it next. Pure: no clock, no I/O, no locks; time comes in as an argument, decisions go out. The
 * agent's shell (root.c) carries them out.
 *
 * A save is known by its sequence number, which grows: the n-th save of a rank since it started, or
 * since all ranks restored together. All ranks save in the same order, so the same number is the
 * same checkpoint on every rank; if their steps differ the ranks disagree, and that is said instead
 * of guessed around. A rank may find itself with a later number than what is being staged: what it
 * had of that went with another agent (ledger_passed).
 *
 * Two slots, and a spare one where memory takes a third. Rules, in the order in which a save meets
 * them:
 *   - one save at a time is being staged; the next waits until all ranks staged it, or it failed;
 *   - a slot being persisted or read by a restoring worker is never given out;
 *   - the newest committed slot is not given out while the spare one can be: what was committed
 * last is in memory until a newer save is committed;
 *   - without a spare slot it is given out only if another one holds a committed save in memory too
 * (it is being persisted): so from the first commit on there is always one whole checkpoint in
 * memory, or, once saves are streamed or when the newest was durable, in the store;
 *   - with interval_ns 0 every committed save must become durable: a committed slot is given out
 * only after it is;
 *   - so must every streamed one. Once it is, what is in memory is older and dropped.
 *
 * Named saves (struct ledger.named) are matched by tag instead of by number, for programs in which
 * not every rank saves every tag:
 *   - a rank that begins another tag, or leaves, has nothing more to add to the tag being staged:
 * it counts as having staged it; who has left, has nothing to add to any later one either;
 *   - so does, once a rank that staged it goes on or asks for a checkpoint, every rank that has
 *     never begun a save and is not known to have died;
 *   - the same tag may be saved again, which adds to it. Then both must become durable, the first
 *     one first; ranks that write by themselves wait until it is, since both are built in one
 * place;
 *   - who saves a tag again that it has its part in, begins a new round, in which all are waited
 *     for as in the first. Who has none yet comes late: those that have theirs are not waited for,
 *     and wait with the next round until it is over;
 *   - a tag that failed on one rank is refused to every other rank once, so that no part of it is
 *     taken for the whole.
 */
#ifndef AGENT_LEDGER_H
#define AGENT_LEDGER_H

#include "ckpt/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEDGER_SLOTS      3
#define LEDGER_SPARE      (LEDGER_SLOTS - 1) /* the spare slot */
#define LEDGER_RANKS_MAX  1024u
#define LEDGER_WHY_MAX    256u
#define LEDGER_STEP_NONE  UINT64_MAX /* of a save that names none: it gets that of the newest */
#define LEDGER_TAGS_KNOWN 256u /* newest tags of an epoch that are added to when saved again */
#define LEDGER_BITS       (LEDGER_RANKS_MAX / 64) /* words of a set of ranks */
#define LEDGER_FAILED     8 /* failed tags that are remembered: no rank is further behind another */

enum slot_state {
	SLOT_EMPTY,     /* holds nothing of value */
	SLOT_STAGING,   /* some rank began; not all have staged */
	SLOT_COMMITTED, /* all ranks staged */
};

/* One generation of the memory tier, over all ranks. */
struct ledger_slot {
	enum slot_state state;
	uint64_t seq;   /* which save */
	uint64_t order; /* counts starts (and failures), over epochs too: which one is older */
	uint64_t step;  /* its training step */
	char tag[CKPT_TAG_MAX]; /* its name */
	bool again;             /* it adds to what the tag holds already */
	bool late;              /* it adds to the newest round of it, begins none */
	bool alone;             /* one rank has a part in it: others wait, and add to it */
	bool streamed;    /* too large for memory: the ranks write it to the store themselves */
	bool persisting;  /* the storage thread reads it */
	bool durable;     /* complete in the store */
	bool urgent;      /* somebody waits for it to be durable */
	uint32_t readers; /* restoring workers that read it */
	uint32_t begun;   /* ranks that began; valid while staging */
	uint32_t staged;  /* ranks that staged */
	uint64_t begun_bits[LEDGER_BITS];  /* which */
	uint64_t staged_bits[LEDGER_BITS]; /* which; not in begun_bits: it has no part in it */
};

/* A tag that was committed in this epoch, of named saves. */
struct ledger_known {
	uint64_t hash;                   /* of its name; 0: none */
	uint64_t part_bits[LEDGER_BITS]; /* ranks that have their part in its newest round */
};

/* A tag that failed, of named saves. */
struct ledger_failed {
	char tag[CKPT_TAG_MAX];          /* "": none */
	uint64_t order;                  /* when it was begun or given up, as slots count */
	uint64_t told_bits[LEDGER_BITS]; /* ranks that know, or went on to a newer tag */
	int code;                        /* PAWL_E code */
	char why[LEDGER_WHY_MAX];        /* for people */
};

struct ledger_times {
	int64_t wait_ns;  /* a begin waits so long for ranks or storage, then the save is skipped */
	int64_t retry_ns; /* shortest pause after a failed persist */
};

struct ledger {
	struct ledger_times times; /* as given */
	uint32_t world;            /* ranks that make a save whole, 1..LEDGER_RANKS_MAX */
	uint32_t first;            /* what people call rank 0 */
	int64_t interval_ns;       /* between persists; 0: every save */
	struct ledger_slot slots[LEDGER_SLOTS];
	uint64_t refused_seq;        /* saves up to this one will not be granted any more */
	uint64_t last_seq;           /* newest save that was granted */
	int64_t persist_due_ns;      /* earliest start of the next persist that nobody waits for */
	int64_t retry_ns;            /* no persist before this: the last one failed */
	bool flush;                  /* make the newest committed durable now */
	bool stream;                 /* the state did not fit once: stream from now on */
	bool named;                  /* saves are matched by tag */
	uint64_t orders;             /* starts so far */
	uint64_t past_order;         /* what is older in memory is older than what the store has, */
	char past_tag[CKPT_TAG_MAX]; /* this; valid if past_order is not 0 */
	uint64_t newest_step;        /* of all tags known */
	uint64_t stored_step;        /* and of those that the store has, or had */
	struct ledger_known known[LEDGER_TAGS_KNOWN]; /* named: the newest, a ring */
	uint32_t known_n;                             /* named: put into it so far */
	uint64_t tight_bits[LEDGER_BITS]; /* ranks that said last that memory takes no spare slot */
	uint64_t began_bits[LEDGER_BITS]; /* named: ranks that have begun a save in this epoch */
	uint64_t gone_bits[LEDGER_BITS];  /* named: ranks that died in this epoch */
	uint64_t left_bits[LEDGER_BITS];  /* named: ranks that left in this epoch, on purpose */
	struct ledger_failed failed[LEDGER_FAILED]; /* named: the newest tags that failed */
	uint32_t failed_at;                         /* which of them is overwritten next */
	char refused_why[LEDGER_WHY_MAX];           /* of refused_seq */
	int refused_code;                           /* PAWL_E code of it */
};

enum ledger_answer {
	LEDGER_GRANT,  /* stage into slot */
	LEDGER_WAIT,   /* ask again after any other event, and after a while */
	LEDGER_REFUSE, /* this save is skipped: code and why */
};

/* What a rank asks for. */
struct ledger_ask {
	uint32_t rank;
	uint64_t seq; /* from 1; of named saves the ledger gives it: 0, or which one needs more */
	uint64_t step;
	char tag[CKPT_TAG_MAX];
	bool alone;        /* no other rank has a part in it */
	bool adds;         /* the rank has saved the tag before, perhaps by another agent */
	bool fits;         /* the memory budget takes this rank's state twice */
	bool spare;        /* and a third time */
	bool streams;      /* it is to be streamed though it fits */
	int64_t waited_ns; /* since it first asked */
	const char *vain;  /* why a rank that is waited for will not come ("it is gone"), as it has
			      been for a moment; NULL: it may */
};

struct ledger_verdict {
	int slot;      /* granted: which */
	uint64_t seq;  /* granted: of the save */
	bool streamed; /* granted: write to the store instead of the arena */
	bool fresh;    /* granted: this rank is the first of this save */
	bool turned;   /* granted: it does not fit any more, and is streamed from now on; what was
			  staged before stays in memory */
	bool more;     /* granted: the rank was granted it before, and needs more */
	bool bare;     /* granted: it held what was committed last, so that an older one is the
			  newest until this save is committed */
	int code;      /* refused: PAWL_E code */
	int withdrawn; /* a slot that failed with this answer (tell the ranks in it), or -1 */
	char why[LEDGER_WHY_MAX]; /* refused: for people */
};

void ledger_init(struct ledger *ledger, const struct ledger_times *times, uint32_t world,
	int64_t interval_ns, int64_t now_ns);
/* The ranks start anew (restart): saves in the making are forgotten, committed ones stay, sequence
 * numbers may begin anywhere. */
void ledger_new_epoch(struct ledger *ledger, uint32_t world);
/* Ranks save in one order. So rank, who begins seq, will have no part in what is being staged, if
 * that is an earlier save and it has none yet: its number, else 0. (What the rank had of it was
 * lost, for example, with an agent that the others never came to.) */
uint64_t ledger_passed(const struct ledger *ledger, uint32_t rank, uint64_t seq);
enum ledger_answer ledger_begin(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict);
/* What a rank does, of what follows that others need not be waited for. */
enum ledger_move {
	MOVE_ASKS,   /* for a checkpoint, or waits for one: what it began is whole */
	MOVE_BEGINS, /* a tag: it has nothing (more) to add to another one */
	MOVE_LEAVES, /* nothing more to add to any */
};

/* Named saves: see above. tag: that it begins. Returns the slot if that committed it, else -1. */
int ledger_move_on(struct ledger *ledger, uint32_t rank, enum ledger_move move, const char *tag);
/* Named saves: rank died, and may have had a part in what is being staged. */
void ledger_gone(struct ledger *ledger, uint32_t rank);
/* Named saves: tag failed on rank, which may not have begun it. Returns as ledger_fail. */
int ledger_fail_tag(struct ledger *ledger, uint32_t rank, const char *tag, int code,
	const char *why);
/* The store has, or had, a tag of this step. */
void ledger_know_stored(struct ledger *ledger, uint64_t step);
/* rank staged seq. Returns the slot if that committed it, else -1 (also for a save that failed
 * meanwhile). */
int ledger_staged(struct ledger *ledger, uint32_t rank, uint64_t seq);
/* seq will not be whole. Returns the slot that it emptied, or -1. Later begins of seq are refused
 * with why. */
int ledger_fail(struct ledger *ledger, uint64_t seq, int code, const char *why);
/* The slot to make durable now, marked persisting, or -1; then *again_ns is when to ask again
 * (INT64_MAX: only after an event). */
int ledger_persist_next(struct ledger *ledger, int64_t now_ns, int64_t *again_ns);
/* Another interval from now on; what is due is so much earlier or later. */
void ledger_set_interval(struct ledger *ledger, int64_t interval_ns);
void ledger_persisted(struct ledger *ledger, int i, bool ok, int64_t now_ns);
/* Somebody waits for seq to be durable (0: for the newest committed). false: it failed or was
 * superseded. */
bool ledger_want_durable(struct ledger *ledger, uint64_t seq);
/* The newest committed slot in memory, or -1: the store has something newer, or nobody has. */
int ledger_newest(const struct ledger *ledger);
/* The committed slot that a restore takes: of the highest step, and of those the newest, as tags
 * are ordered in the store; -1 as above. streamed: what ranks write themselves counts, too. */
int ledger_highest(const struct ledger *ledger, bool streamed);
/* Whether what is in a slot is older than what the store has, and is not in memory any more. */
bool ledger_is_past(const struct ledger *ledger, int i);
/* Whether an empty slot may be given to the next save, so that memory for it is of use. */
bool ledger_is_next(const struct ledger *ledger, int i);
/* Whether the spare slot is empty and stays so: memory does not take it (any more). */
bool ledger_is_spare_vain(const struct ledger *ledger);
/* Whether rank has a part in what is in a slot. */
bool ledger_has_part(const struct ledger *ledger, int i, uint32_t rank);
/* Nothing committed is left that is not durable. */
bool ledger_all_durable(const struct ledger *ledger);
/* The first rank that has not staged what is being staged; world if nothing is. */
uint32_t ledger_missing(const struct ledger *ledger);
/* A committed slot holds nothing. Who took part in it is still known: it is not waited for by those
 * that have something after all. */
void ledger_pass(struct ledger *ledger, int i);
/* tag, of that step, is the newest that the store has ("": it has none). If that is not what it
 * should have, but something older, what was past is not; returns whether memory has it. */
bool ledger_recall(struct ledger *ledger, const char *tag, uint64_t step);
/* The content of a committed slot is worthless (its bytes failed verification). If it was the
 * newest and is durable, what is older is past. */
void ledger_drop(struct ledger *ledger, int i);

#endif
