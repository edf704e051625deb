/* Bad weather for the server in s3_server.h: part of its requests goes wrong, at random, in one of
 * the ways that a service, a proxy or a network has. */
#ifndef TEST_S3_WEATHER_H
#define TEST_S3_WEATHER_H

#include "base/rng.h"
#include "s3_server.h"

struct s3_weather_way {
	const char *name;
	struct s3_fault fault;
	/* Left out unless it is named: a client waits for its end, or cannot notice it by
	 * itself. */
	bool named_only;
};

/* For s3_weather_blow, whose calls come one at a time. */
struct s3_weather {
	struct rng rng;
	const struct s3_weather_way *way; /* the only one; NULL: all that need no name */
	unsigned percent;                 /* share of the requests that go wrong */
};

/* Returns the i-th way; NULL: there are fewer. */
const struct s3_weather_way *s3_weather_way(unsigned i);
/* Returns the way of a name, or NULL. */
const struct s3_weather_way *s3_weather_find(const char *name);
/* Fits s3_hook_fn; user is a struct s3_weather. Nothing happens that nobody could notice: a page in
 * place of an answer that says nothing but its status, blanks in an object, a flipped bit in what
 * has no checksum. */
void s3_weather_blow(void *user, const struct s3_ask *ask, struct s3_fault *fault);

#endif
