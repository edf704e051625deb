/*
 * The ledger of one root: which save is in which generation of the memory tier, and what may happen
 * to it next. Pure: no clock, no I/O, no locks; time comes in as an argument, decisions go out. The
 * agent's shell (root_saves.c) carries them out.
 *
 * A save is known by its sequence number, which grows: the n-th save of a rank since it started, or
 * since all ranks restored together. All ranks save in the same order, so the same number is the
 * same checkpoint on every rank; if their steps differ the ranks disagree, and the save is refused.
 * A rank may find itself with a later number than the save being staged: its part of that save was
 * lost with another agent (ledger_skipped_seq).
 *
 * There are two slots, and a spare one where memory takes a third. Rules, in the order in which a
 * save meets them:
 *   - one save at a time is being staged; the next waits until all ranks have staged it, or it has
 *     failed;
 *   - a slot being persisted or read by a restoring worker is never given out;
 *   - where memory takes a third save, the newest committed slot is not given out before its save
 *     is durable: the save committed last stays until a newer save is committed. If all other
 *     slots are in use, the next save waits for the store;
 *   - without a spare slot, the newest committed slot is given out only if another one holds a
 *     committed save in memory too (it is being persisted): so from the first commit on there is
 *     always one whole checkpoint in memory, or, once saves are streamed or when the newest was
 *     durable, in the store;
 *   - with interval_ns 0 every committed save must become durable: a committed slot is given out
 *     only once its save is durable;
 *   - every streamed save must become durable, too. Once it is, the saves in memory are older and
 *     are dropped.
 *
 * Where the ranks span hosts that choose together what becomes durable (enum ledger_role), each
 * host has a ledger, and interval_ns is above 0:
 *   - a ledger that follows persists no save by itself, only the one that the other host has chosen
 *     (ledger_choose). A save that somebody waits for keeps its slot until then (ledger_wanted);
 *   - saves become durable in order: once one is durable, no older one need be.
 *
 * Named saves (struct ledger.named) are matched by tag instead of by number, for programs in which
 * not every rank saves every tag:
 *   - a rank that begins another tag, or leaves, has nothing more to add to the tag being staged:
 *     it counts as having staged it; a rank that has left has nothing to add to any later tag
 *     either;
 *   - once a rank that staged the tag goes on or asks for a checkpoint, every rank that has never
 *     begun a save and is not known to have died counts as having staged it, too;
 *   - the same tag may be saved again, which adds to it. Then both saves must become durable, the
 *     first one first; ranks that write by themselves wait until the first one is, since both are
 *     built in one place;
 *   - a rank that saves a tag again in which it has its part begins a new round, in which all are
 *     waited for as in the first. A rank that has no part yet comes late: ranks that have theirs
 *     are not waited for, and wait with the next round until this one is over;
 *   - a tag that failed on one rank is refused to every other rank once, so that no part of it is
 *     taken for the whole.
 */
#ifndef AGENT_LEDGER_LEDGER_H
#define AGENT_LEDGER_LEDGER_H

#include "ckpt/format/manifest.h"
#include "ipc/tier_slots.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LEDGER_SLOTS      ARENA_SLOTS
#define LEDGER_SPARE      (LEDGER_SLOTS - 1) /* the spare slot */
#define LEDGER_RANKS_MAX  1024u
#define LEDGER_WHY_MAX    256u
#define LEDGER_STEP_NONE  UINT64_MAX /* step of a save that names none: it gets the newest save's */
#define LEDGER_TAGS_KNOWN 256u       /* newest tags of an epoch that a later save adds to */
#define LEDGER_SET_WORDS  (LEDGER_RANKS_MAX / 64) /* words of a set of ranks */
#define LEDGER_FAILED_MAX 8 /* failed tags that are remembered: no rank is further behind another */

/* A set of ranks, by their numbers in the ledger. */
struct rank_set {
	uint64_t words[LEDGER_SET_WORDS]; /* one bit a rank; rank 0 is the lowest bit of words[0] */
};

enum slot_state {
	SLOT_EMPTY,     /* holds nothing of value */
	SLOT_STAGING,   /* some rank began; not all have staged */
	SLOT_COMMITTED, /* all ranks staged */
};

/* One generation of the memory tier, over all ranks. */
struct ledger_slot {
	enum slot_state state;
	uint64_t seq;   /* sequence number of the save */
	uint64_t order; /* counts starts and failures over all epochs: the lower one is older */
	uint64_t step;  /* training step */
	char tag[CKPT_TAG_MAX]; /* name of the checkpoint */
	bool adds;              /* adds to what the tag holds already */
	bool joins_round;       /* adds to the tag's newest round, begins none */
	bool alone;             /* one rank has a part in it: the others wait, and add to it */
	bool streamed;    /* too large for memory: the ranks write it to the store themselves */
	bool persisting;  /* the storage thread reads it */
	bool durable;     /* complete in the store */
	bool urgent;      /* somebody waits until the save is durable */
	bool chosen;      /* follows: all hosts make the save durable now */
	uint32_t readers; /* restoring workers that read the slot */
	uint32_t begun;   /* ranks that began; valid while staging */
	uint32_t staged;  /* ranks that staged */
	struct rank_set begun_ranks;  /* ranks that began */
	struct rank_set staged_ranks; /* ranks that staged; not in begun_ranks: have no part */
};

/* A tag that was committed in this epoch; for named saves. */
struct ledger_known {
	uint64_t hash;              /* hash of the tag; 0: unused */
	struct rank_set part_ranks; /* ranks that have their part in the tag's newest round */
};

/* A tag that failed; for named saves. */
struct ledger_failed {
	char tag[CKPT_TAG_MAX];         /* "": none */
	uint64_t order;                 /* when begun or given up, on the scale of slot.order */
	struct rank_set notified_ranks; /* ranks that know, or went on to a newer tag */
	int code;                       /* PAWL_E code */
	char why[LEDGER_WHY_MAX];       /* for users */
};

struct ledger_times {
	int64_t wait_ns;  /* most a begin waits for ranks or storage; then the save is skipped */
	int64_t retry_ns; /* shortest pause after a failed persist */
};

/* What a ledger has to do with those of other hosts. */
enum ledger_role {
	LEDGER_ALONE,   /* nothing: it decides for itself what is persisted */
	LEDGER_LEADS,   /* decides for all hosts */
	LEDGER_FOLLOWS, /* persists what another host's ledger has decided */
};

struct ledger {
	struct ledger_times times; /* as given to ledger_init */
	uint32_t world;            /* ranks that make a save whole, 1..LEDGER_RANKS_MAX */
	uint32_t first_rank;       /* number of rank 0 here in the job, for users */
	int64_t interval_ns;       /* between persists; 0: every save is persisted */
	enum ledger_role role;     /* set by the owner; with another than ALONE, interval_ns > 0 */
	struct ledger_slot slots[LEDGER_SLOTS];
	uint64_t refused_seq;      /* newest save that is refused, as are all before it */
	uint64_t last_seq;         /* newest save that was granted */
	int64_t persist_due_ns;    /* earliest next persist unless somebody waits; monotonic ns */
	int64_t retry_ns;          /* no persist before this time: the last one failed */
	bool flush;                /* make the newest committed save durable now */
	bool stream;               /* the state did not fit once: stream from now on */
	bool named;                /* saves are matched by tag */
	uint64_t last_order;       /* starts and failures so far, the last order */
	uint64_t durable_order;    /* newest slot that became durable in this epoch; 0: none */
	uint64_t store_only_order; /* slots of a lower order are older than the store's newest */
	/* Tag of the save of store_only_order; valid if that is not 0. */
	char store_only_tag[CKPT_TAG_MAX];
	uint64_t newest_step; /* highest step of all tags known */
	uint64_t stored_step; /* highest step of the tags that the store has, or had */
	struct ledger_known known[LEDGER_TAGS_KNOWN]; /* named: the newest tags, a ring */
	uint32_t known_n;                             /* named: tags put into known so far */
	/* Ranks whose last request had no space for the spare slot. */
	struct rank_set no_spare_ranks;
	struct rank_set began_ranks; /* named: ranks that have begun a save in this epoch */
	struct rank_set died_ranks;  /* named: ranks that died in this epoch */
	struct rank_set left_ranks;  /* named: ranks that left in this epoch, on purpose */
	struct ledger_failed failed[LEDGER_FAILED_MAX]; /* named: newest tags that failed, a ring */
	uint32_t failed_n;                              /* failed tags put into failed so far */
	char refused_why[LEDGER_WHY_MAX];               /* why refused_seq failed */
	int refused_code;                               /* PAWL_E code of that failure */
};

enum ledger_answer {
	LEDGER_GRANT,  /* stage into slot */
	LEDGER_WAIT,   /* ask again after any other event, and after a while */
	LEDGER_REFUSE, /* this save is skipped: code and why */
};

/* Request of one rank for a save. */
struct ledger_ask {
	uint32_t rank;
	uint64_t seq; /* from 1; named saves: 0, or the number of a save that needs more */
	uint64_t step;
	char tag[CKPT_TAG_MAX];
	bool alone;        /* no other rank has a part in the save */
	bool adds;         /* the rank has saved the tag before, perhaps by another agent */
	bool fits;         /* the memory budget takes this rank's state twice */
	bool fits_spare;   /* the memory budget takes it a third time */
	bool streams;      /* stream the save though it fits */
	int64_t waited_ns; /* time since the rank first asked */
	/* Why the rank that is waited for will not come ("it is gone"), if that has lasted for a
	 * moment; NULL: it may come. */
	const char *stuck_why;
};

struct ledger_verdict {
	int slot;      /* granted: index of the slot */
	uint64_t seq;  /* granted: number of the save */
	bool streamed; /* granted: write to the store instead of the arena */
	bool fresh;    /* granted: this rank is the first of the save */
	/* Granted: the save no longer fits, and is streamed from now on; parts staged before stay
	 * in memory. */
	bool now_streamed;
	bool granted_before; /* granted: the rank was granted this save before, and needs more */
	/* Granted: the slot held the save committed last; until this one is committed, an older one
	 * is the newest. */
	bool overwrites_newest;
	int code;                 /* refused: PAWL_E code */
	int failed_slot;          /* slot that failed with this answer (notify its ranks), or -1 */
	char why[LEDGER_WHY_MAX]; /* refused: for users */
};

void ledger_init(struct ledger *ledger, const struct ledger_times *times, uint32_t world,
	int64_t interval_ns, int64_t now_ns);
/* The ranks start anew (restart): forgets saves in the making, keeps committed ones; sequence
 * numbers may begin anywhere. */
void ledger_new_epoch(struct ledger *ledger, uint32_t world);
/* Returns the number of the save being staged if rank, which begins seq, will have no part in it,
 * else 0. Ranks save in one order, so that is so if it is an earlier save in which rank has no part
 * yet. (That part was lost, for example, with an agent that the other ranks never came to.) */
uint64_t ledger_skipped_seq(const struct ledger *ledger, uint32_t rank, uint64_t seq);
enum ledger_answer ledger_begin(struct ledger *ledger, const struct ledger_ask *ask,
	struct ledger_verdict *verdict);
/* Moves of a rank from which it follows that some ranks need not be waited for. */
enum ledger_move {
	MOVE_ASKS,   /* asks for a checkpoint, or waits for one: what the rank began is whole */
	MOVE_BEGINS, /* begins a tag: nothing (more) to add to another one */
	MOVE_LEAVES, /* leaves: nothing more to add to any tag */
};

/* Named saves: see above. tag: the one that rank begins. Returns the slot if the move committed it,
 * else -1. */
int ledger_move_on(struct ledger *ledger, uint32_t rank, enum ledger_move move, const char *tag);
/* Named saves: rank died, and may have had a part in the save being staged. */
void ledger_rank_died(struct ledger *ledger, uint32_t rank);
/* Named saves: tag failed on rank, which may not have begun it. Returns as ledger_fail. */
int ledger_fail_tag(struct ledger *ledger, uint32_t rank, const char *tag, int code,
	const char *why);
/* The store has, or had, a tag of this step. */
void ledger_record_stored(struct ledger *ledger, uint64_t step);
/* rank staged seq. Returns the slot if that committed it, else -1 (also if the save has failed
 * meanwhile). */
int ledger_staged(struct ledger *ledger, uint32_t rank, uint64_t seq);
/* seq will not be whole. Returns the slot that was emptied, or -1. Later begins of seq are refused
 * with why. */
int ledger_fail(struct ledger *ledger, uint64_t seq, int code, const char *why);
/* Returns the slot to make durable now, marked persisting, or -1; *again_ns is then when to ask
 * again (INT64_MAX: only after an event). */
int ledger_persist_next(struct ledger *ledger, int64_t now_ns, int64_t *again_ns);
/* Sets another interval from now on; the next persist is due earlier or later by the difference. */
void ledger_set_interval(struct ledger *ledger, int64_t interval_ns);
void ledger_persisted(struct ledger *ledger, int i, bool ok, int64_t now_ns);
/* Makes seq durable out of turn (0: the newest committed), as somebody waits for it. Returns false
 * if the save failed or was superseded. */
bool ledger_want_durable(struct ledger *ledger, uint64_t seq);
/* Follows: the save of this number, and no other, is persisted next. Returns false if it is not
 * committed here, or is older than one that is durable. */
bool ledger_choose(struct ledger *ledger, uint64_t seq);
/* Follows: returns the committed slot of which somebody here waits that it is chosen; -1: none. */
int ledger_wanted(const struct ledger *ledger);
/* Whether the save in a slot will not be made durable, since a newer one is. */
bool ledger_is_passed(const struct ledger *ledger, int i);
/* Returns the newest committed slot in memory; -1: the store has a newer one, or there is none. */
int ledger_newest(const struct ledger *ledger);
/* Returns the committed slot that a restore takes: of the highest step, and among those the newest,
 * as tags are ordered in the store; -1 as above. streamed: streamed saves count, too. */
int ledger_highest(const struct ledger *ledger, bool streamed);
/* Whether the save in a slot is older than one that is in the store and no longer in memory. */
bool ledger_is_outdated(const struct ledger *ledger, int i);
/* Whether an empty slot may be given to the next save, so that memory for it is of use. */
bool ledger_is_next(const struct ledger *ledger, int i);
/* Whether the spare slot is empty and stays empty, since memory has no space for it (any more). */
bool ledger_is_spare_unused(const struct ledger *ledger);
/* Whether rank has a part in the save in a slot. */
bool ledger_has_part(const struct ledger *ledger, int i, uint32_t rank);
/* Whether every committed save that must become durable is durable, and no persist is under way. */
bool ledger_all_durable(const struct ledger *ledger);
/* Returns the first rank that has not staged the save being staged; world if none is. */
uint32_t ledger_missing_rank(const struct ledger *ledger);
/* A committed slot holds nothing. Its ranks are still known: the slot's tag does not wait for them
 * when other ranks have something to add after all. */
void ledger_discard_empty(struct ledger *ledger, int i);
/* The store's newest is tag, of that step ("": it has none). If that is older than what the store
 * should have, outdated slots count again; returns whether memory has a newer one. */
bool ledger_revive_slots(struct ledger *ledger, const char *tag, uint64_t step);
/* The content of a committed slot is worthless (its bytes failed verification). If it was the
 * newest and is durable, older slots are outdated. */
void ledger_drop(struct ledger *ledger, int i);

#endif
