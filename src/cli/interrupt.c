/* Signals that ask a command to end: see interrupt.h. */
#include "cli/interrupt.h"

#include "base/err.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t last_signal; /* the last signal that came; 0: none */

static void on_signal(int number)
{
	last_signal = number;
}

void interrupt_catch(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = on_signal};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		sigaction(numbers[i], &action, NULL);
	}
}

int interrupt_signal(void)
{
	return last_signal;
}

static bool was_interrupted(void *user)
{
	return last_signal != 0;
}

const struct tags_stop interrupt_stop = {was_interrupted, NULL};

int interrupt_check(struct pawl_err *err)
{
	return last_signal == 0 ? 0
				: pawl_err_set(err, PAWL_ECANCELED, "stopped by signal %d (%s)",
					  last_signal, strsignal(last_signal));
}
