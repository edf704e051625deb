/* Jobs and nodes as JSON, as `--json` of the commands prints it, and the scheduler answers over
 * HTTP, and the names of users and states that the tables of commands print, too. The caller
 * releases each json_t; NULL: no memory. */
#ifndef DAEMON_SCHED_MSG_JSON_H
#define DAEMON_SCHED_MSG_JSON_H

#include "daemon/sched_msg.h"

struct json_t;

struct json_t *sched_msg_job_json(const struct sched_msg_job *job);
struct json_t *sched_msg_shown_json(const struct sched_msg_shown *shown);
struct json_t *sched_msg_node_json(const struct sched_msg_node *node);
/* Returns a string; bytes that are no UTF-8 (a name cut in mid-character, a foreign path) become
 * '?'. */
struct json_t *sched_msg_text_json(const char *text);
/* Returns an array of the lines of a text, each as above. */
struct json_t *sched_msg_lines_json(const char *text);

const char *sched_msg_node_state(const struct sched_msg_node *node);
/* Returns, in buf, the user's name, or number. */
const char *sched_msg_user_name(uint32_t uid, char *buf, size_t cap_bytes);

#endif
