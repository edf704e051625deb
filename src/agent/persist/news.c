/* News of a root for people: see news.h. */
#include "agent/persist/news.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum news_word news_decide(struct news_state *state, const struct news_item *item, int64_t now_ns,
	int64_t again_ns)
{
	bool lasted = state->lasts;
	bool changed = item->key != state->key;

	if (item->kind == NEWS_ONCE) {
		return NEWS_BEGINS;
	}
	if (item->good) {
		state->lasts = false;
		return lasted ? NEWS_ENDS : NEWS_NOTHING;
	}
	state->lasts = true;
	state->key = item->key;
	state->times = lasted ? state->times + 1 : 1;
	state->since_ns = lasted ? state->since_ns : now_ns;
	memcpy(state->text, item->text, sizeof(state->text));
	if (lasted && !changed && now_ns - state->told_ns < again_ns) {
		return NEWS_NOTHING;
	}
	state->told_ns = now_ns;
	return lasted && !changed ? NEWS_LASTS : NEWS_BEGINS;
}

static void fill(struct news_item *item, enum news_kind kind, const struct pawl_err *err,
	const char *fmt, va_list args)
{
	size_t len;

	*item = (struct news_item){.kind = kind, .good = err == NULL};
	vsnprintf(item->text, sizeof(item->text), fmt, args);
	if (err != NULL) {
		len = strlen(item->text);
		item->key = err->sys != 0 ? err->sys : err->code;
		snprintf(item->text + len, sizeof(item->text) - len, "%s%s", len > 0 ? ": " : "",
			err->msg);
	}
}

void news_fill(struct news_item *item, enum news_kind kind, const struct pawl_err *err,
	const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fill(item, kind, err, fmt, args);
	va_end(args);
}

void news_init(struct news *news)
{
	*news = (struct news){.n = 0};
	pthread_mutex_init(&news->lock, NULL);
}

void news_deinit(struct news *news)
{
	pthread_mutex_destroy(&news->lock);
}

void news_put(struct news *news, enum news_kind kind, const struct pawl_err *err, const char *fmt,
	...)
{
	struct news_item item;
	va_list args;

	va_start(args, fmt);
	fill(&item, kind, err, fmt, args);
	va_end(args);
	pthread_mutex_lock(&news->lock);
	if (news->n == NEWS_WAITING_MAX) {
		news->n--;
		memmove(news->items, news->items + 1, news->n * sizeof(news->items[0]));
	}
	news->items[news->n++] = item;
	pthread_mutex_unlock(&news->lock);
}

void news_put_aside(struct news *news, const char *tag, const char *why, const struct pawl_err *err)
{
	if (err != NULL) {
		news_put(news, NEWS_ONCE, err, "%s is damaged (%.200s) and cannot be put aside",
			tag, why);
	} else {
		news_put(news, NEWS_ONCE, NULL, "%s is damaged and put aside: %.256s", tag, why);
	}
}

bool news_take(struct news *news, struct news_item *item)
{
	bool any;

	pthread_mutex_lock(&news->lock);
	any = news->n > 0;
	if (any) {
		*item = news->items[0];
		news->n--;
		memmove(news->items, news->items + 1, news->n * sizeof(news->items[0]));
	}
	pthread_mutex_unlock(&news->lock);
	return any;
}
