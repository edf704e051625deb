/*
 * A store around another store whose n-th operation misbehaves: fails, tears, shortens, delays or
 * hangs. For tests of the layers above. To make a single call of ours fail, see base/fault.h.
 *
 * Every call but reap, close and close_file is an operation, a submit included. A transfer fails
 * when it is reaped, as on a disk; other calls fail themselves, and block where the fault is a
 * delay or a hang. An operation to which the fault does not apply works normally, or with TEAR
 * fails, doing nothing. The wrapper is flat if the inner store is; a flat store tears nothing but
 * transfers: TEAR fails there. Polls once a millisecond while it withholds a transfer.
 */
#ifndef STORE_FAULT_H
#define STORE_FAULT_H

#include "store/store.h"

enum store_fault {
	STORE_FAULT_FAIL,  /* returns the error, does nothing */
	STORE_FAULT_TEAR,  /* a write, small or not, or append does half of its work, then fails */
	STORE_FAULT_SHORT, /* a read, small or not, yields zeros in its second half and reports
			      success (a lying disk) */
	STORE_FAULT_DELAY, /* takes arg_ms longer */
	STORE_FAULT_HANG,  /* does not return until store_fault_release */
	/* An operation that changes something does all of its work, then returns the error, as when
	 * the answer of a server is lost. */
	STORE_FAULT_UNANSWERED,
};

struct store_fault_plan {
	enum store_fault what;
	uint64_t nth;    /* from 1; counted over all operations */
	bool forever;    /* every operation from the nth on; otherwise only the nth */
	int code;        /* error code for FAIL, TEAR and UNANSWERED: PAWL_EIO, PAWL_ENOSPC… */
	uint32_t arg_ms; /* delay in ms for DELAY */
};

/* Wraps inner, which then belongs to the wrapper and is closed with it. plan may be NULL: no fault.
 * On error inner stays the caller's. */
int store_fault_open(struct store *inner, const struct store_fault_plan *plan, struct store **store,
	struct pawl_err *err);
/* Replaces the plan; operations are counted from 0 again. NULL: no fault. Withheld transfers stay
 * withheld. */
void store_fault_set(struct store *store, const struct store_fault_plan *plan);
uint64_t store_fault_ops(const struct store *store); /* operations since open or set */
void store_fault_release(struct store *store);       /* from any thread: ends all hangs, for good */

#endif
