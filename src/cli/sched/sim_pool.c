/* Reads --pool of pawl sim: NAME,KEY=VALUE,… */
#include "cli/cli.h"
#include "cli/sched/sim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NODES 1024.0
#define MOST_S     (365 * 86400.0)
#define MOST_PRICE 1e9
#define MOST_SPEED 1e3

/* The keys of a pool, all doubles. */
struct pool_values {
	double least, most, price, speed, boot_s, life_s, notice_s, gap_s;
};

static const struct {
	const char *name;
	size_t offset; /* in struct pool_values */
	double most;
	bool whole;
	bool positive;
} keys[] = {
	{"least", offsetof(struct pool_values, least), MOST_NODES, true, false},
	{"most", offsetof(struct pool_values, most), MOST_NODES, true, true},
	{"price", offsetof(struct pool_values, price), MOST_PRICE, false, false},
	{"speed", offsetof(struct pool_values, speed), MOST_SPEED, false, true},
	{"boot", offsetof(struct pool_values, boot_s), MOST_S, false, false},
	{"life", offsetof(struct pool_values, life_s), MOST_S, false, false},
	{"notice", offsetof(struct pool_values, notice_s), MOST_S, false, false},
	{"gap", offsetof(struct pool_values, gap_s), MOST_S, false, false},
};
#define KEYS_N (sizeof(keys) / sizeof(*keys))

/* Reads KEY=VALUE. */
static bool read_key(const struct cli_command *command, char *word, struct pool_values *values)
{
	char *value = strchr(word, '=');
	char *end;
	size_t i = 0;
	double number;

	if (value == NULL) {
		cli_usage(command, "--pool: %s: spot or KEY=VALUE is needed", word);
		return false;
	}
	*value++ = '\0';
	while (i < KEYS_N && strcmp(keys[i].name, word) != 0) {
		i++;
	}
	if (i == KEYS_N) {
		cli_usage(command,
			"--pool: %s: the keys are least, most, price, speed, boot, spot, life, "
			"notice and gap",
			word);
		return false;
	}
	number = strtod(value, &end);
	if (end == value || *end != '\0' || !(number >= 0 && number <= keys[i].most) ||
		(keys[i].positive && number <= 0) || (keys[i].whole && number != floor(number))) {
		cli_usage(command, "--pool: %s=%s: a %snumber %s0 and at most %g is needed", word,
			value, keys[i].whole ? "whole " : "", keys[i].positive ? "over " : "from ",
			keys[i].most);
		return false;
	}
	*(double *)(void *)((char *)values + keys[i].offset) = number;
	return true;
}

static bool add(const struct cli_command *command, struct sim_pools *pools, const char *name,
	const struct pool_values *values, bool spot)
{
	if (pools->n == SIM_POOLS_MAX) {
		cli_usage(command, "--pool: more than %u", SIM_POOLS_MAX);
		return false;
	}
	for (uint32_t i = 0; i < pools->n; i++) {
		if (strcmp(pools->names[i], name) == 0) {
			cli_usage(command, "--pool %s: given twice", name);
			return false;
		}
	}
	if (values->least > values->most) {
		cli_usage(command, "--pool %s: least is over most", name);
		return false;
	}
	snprintf(pools->names[pools->n], SIM_POOL_NAME, "%s", name);
	pools->pools[pools->n] = (struct sched_pool){.name = pools->names[pools->n],
		.least = (uint32_t)values->least,
		.most = (uint32_t)values->most,
		.price = values->price,
		.speed = values->speed,
		.boot_s = values->boot_s,
		.spot = spot,
		.life_s = values->life_s,
		.notice_s = values->notice_s,
		.gap_s = values->gap_s};
	pools->n++;
	return true;
}

bool sim_pool_read(const struct cli_command *command, const char *text, struct sim_pools *pools)
{
	struct pool_values values =
		{.most = 16, .price = 1, .speed = 1, .boot_s = 60, .notice_s = 120, .gap_s = 600};
	char copy[256];
	char *at = copy;
	const char *name;
	char *word;
	bool spot = false;

	if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy)) {
		cli_usage(command, "--pool: too long");
		return false;
	}
	name = strsep(&at, ",");
	if (name[0] == '\0' || strlen(name) >= SIM_POOL_NAME || strchr(name, '=') != NULL) {
		cli_usage(command, "--pool %s: a name of up to %u characters is needed first", text,
			SIM_POOL_NAME - 1);
		return false;
	}
	while ((word = strsep(&at, ",")) != NULL) {
		if (strcmp(word, "spot") == 0) {
			spot = true;
		} else if (!read_key(command, word, &values)) {
			return false;
		}
	}
	return add(command, pools, name, &values, spot);
}
