/*
 * Notices that a cloud will take this machine away: which service is asked, what it is asked, and
 * what its answers mean. Pure: notice_watcher.h sends the requests and has the clock.
 *
 *   AWS    a token by PUT (IMDSv2), then spot/instance-action and, in the same round, the
 *          rebalance recommendation, which is advice only; a round every times.aws_ns
 *   GCP    instance/preempted, at first at once, then held by the service until it changes
 *   Azure  the name of this machine, then the scheduled events every times.azure_ns. They are those
 *          of all machines of a set: only those of this name count. Nothing is ever acknowledged:
 *          that would let the event begin at once, and for the machines of others
 *
 * An answer is at most NOTICE_ANSWER_MAX bytes. Whatever is not understood counts as no answer.
 * Questions without an answer are repeated, with pauses that double up to times.again_max_ns; after
 * NOTICE_FAILURES in a row there is one event, and another one when the service answers again.
 */
#ifndef NOTICE_NOTICE_H
#define NOTICE_NOTICE_H

#include "store/object/object_url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_request;
struct pawl_err;

#define NOTICE_ANSWER_MAX (64u << 10) /* bytes of an answer's body; a longer one is refused */
#define NOTICE_TEXT_MAX   384u        /* bytes of an event's text, terminator included */
#define NOTICE_TOKEN_MAX  1024u       /* bytes of a token of AWS, terminator included */
#define NOTICE_NAME_MAX   256u        /* bytes of a machine's name */
#define NOTICE_ETAG_MAX   128u        /* bytes of a version of a value of GCP */
#define NOTICE_DATE_MAX   40u         /* bytes of a date */
#define NOTICE_DMI_MAX    64u         /* bytes of a text of the firmware */
#define NOTICE_FAILURES   3u          /* failures in a row that are reported */

/* ---- which service is asked ---- */

enum notice_cloud { NOTICE_NOBODY, NOTICE_AWS, NOTICE_GCP, NOTICE_AZURE };

/* The service that is asked. */
struct notice_source {
	enum notice_cloud cloud;            /* NOTICE_NOBODY: there is none */
	char endpoint[OBJECT_ENDPOINT_MAX]; /* "http://169.254.169.254" */
};

/* What the firmware says of the machine's maker; "": unknown. */
struct notice_dmi {
	char sys_vendor[NOTICE_DMI_MAX];        /* "Amazon EC2" */
	char board_vendor[NOTICE_DMI_MAX];      /* "Google" */
	char chassis_asset_tag[NOTICE_DMI_MAX]; /* all machines of Azure share one */
};

/* Returns whose machine this is. */
enum notice_cloud notice_cloud_of(const struct notice_dmi *dmi);
/* Returns "AWS", "GCP", "Azure"; "" for NOTICE_NOBODY. */
const char *notice_cloud_name(enum notice_cloud cloud);
/* Reads a source: "auto" (by dmi), "none", "aws", "gcp", "azure", or a service that answers as one
 * of these does, "aws+http://HOST[:PORT]". PAWL_EINVAL. */
int notice_source_parse(const char *text, const struct notice_dmi *dmi,
	struct notice_source *source, struct pawl_err *err);

/* ---- what it is asked ---- */

struct notice_times {
	int64_t aws_ns, azure_ns; /* between two rounds of questions */
	int64_t hold_ns;          /* how long GCP's service may hold a question */
	int64_t answer_ns;        /* for an answer that is not held */
	int64_t first_ns;         /* for Azure's first list of events, which turns them on */
	int64_t again_ns;         /* first pause after a question without an answer */
	int64_t again_max_ns;     /* longest such pause */
};

enum notice_kind {
	NOTICE_NOTHING, /* no event */
	NOTICE_STOP,    /* the machine goes away in left_ns: nothing else needs to be asked */
	NOTICE_ADVICE,  /* the machine may go away soon */
	NOTICE_TROUBLE, /* the service does not answer */
	NOTICE_WELL,    /* the service answers again */
};

struct notice_event {
	enum notice_kind kind;      /* tells whether left_ns counts */
	int64_t left_ns;            /* time until the machine is gone, 0: it may go at any moment */
	char text[NOTICE_TEXT_MAX]; /* "AWS: terminate at 12:04:31Z"; fit to be printed */
};

/* An answer of the service; all pointers are the caller's. */
struct notice_answer {
	int rv;             /* 0, or why there is none: a PAWL_E code */
	const char *why;    /* text of rv; NULL if rv is 0 */
	int status;         /* status of HTTP */
	const char *text;   /* body, with text_bytes bytes; NULL: empty */
	size_t text_bytes;  /* bytes of text */
	const char *etag;   /* header ETag, or NULL */
	const char *flavor; /* header Metadata-Flavor, or NULL */
};

/* Questions; each cloud has some of them. */
enum notice_question {
	NOTICE_ASK_TOKEN,     /* AWS: a token for the others */
	NOTICE_ASK_ACTION,    /* AWS: what will be done to the machine */
	NOTICE_ASK_REBALANCE, /* AWS: whether it is advised to leave */
	NOTICE_ASK_NOW,       /* GCP: whether the machine is preempted */
	NOTICE_ASK_HELD,      /* GCP: the same, once that has changed */
	NOTICE_ASK_NAME,      /* Azure: the machine's name */
	NOTICE_ASK_EVENTS,    /* Azure: what will be done to which machines */
};

/* One service that is being asked. */
struct notice_watch {
	struct notice_source source;   /* as given */
	struct notice_times times;     /* as given */
	enum notice_question question; /* question to ask next */
	char token[NOTICE_TOKEN_MAX];  /* AWS */
	bool token_is_new;             /* AWS: no question with this token was answered yet */
	char advised[NOTICE_DATE_MAX]; /* AWS: date of the last advice; "": none yet */
	char etag[NOTICE_ETAG_MAX];    /* GCP: version of the last value; "": unknown */
	char name[NOTICE_NAME_MAX];    /* Azure: this machine */
	bool has_events;               /* Azure: a list of events has come */
	uint32_t failures;             /* questions in a row that had no answer */
	bool reported;                 /* NOTICE_TROUBLE was the last report */
};

/* Begins. The source must have a cloud. */
void notice_watch_init(struct notice_watch *watch, const struct notice_source *source,
	const struct notice_times *times);
/* Makes the next request, which has no body. Returns how long to wait for its answer, in ns. */
int64_t notice_ask(const struct notice_watch *watch, struct http_request *request);
/* Takes the answer to it; now_s: seconds since 1970. Fills *event. Returns the time from the
 * request's start to the next one, in ns: 0, at once. */
int64_t notice_take(struct notice_watch *watch, const struct notice_answer *answer, int64_t now_s,
	struct notice_event *event);

#endif
