/*
 * Traces: a group's last operations, in a file for `pawl explain`. See coll/group/trace.h.
 *
 * The file is mapped and fully allocated when the group begins. So writing a record is writing to
 * memory, and a process that is killed loses no record.
 */
#ifndef COLL_GROUP_GROUP_TRACE_H
#define COLL_GROUP_GROUP_TRACE_H

#include "coll/group/group_impl.h"

/* Records operations from now on, if PAWL_TRACE names a directory, which is made if it is missing.
 * endpoints: those of all ranks, which identify the group's files. A failure is only logged. */
void group_trace_open(struct pawl_group *group, const char *const *endpoints);
void group_trace_close(struct group_trace *trace);
/* Under driving and state: records a work that has succeeded at now_ns. first_ns: when it became
 * the first on its channel. */
void group_trace_done(struct pawl_group *group, struct pawl_work *work, int64_t first_ns);
/* Under state: records that a thread has waited for a work from from_ns to to_ns. */
void group_trace_waited(struct pawl_group *group, const struct pawl_work *work, int64_t from_ns,
	int64_t to_ns);
/* Records a step of a pipeline, of which this rank is a stage, from from_ns to to_ns. planned_ns:
 * see trace_record.bytes. Any thread, without state. */
void group_trace_step(struct pawl_group *group, uint64_t number, int64_t from_ns, int64_t to_ns,
	int64_t busy_ns, int64_t planned_ns);

#endif
