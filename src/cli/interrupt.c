/* Signals that ask a command to leave: see interrupt.h. */
#include "cli/interrupt.h"

#include "base/err.h"

#include <signal.h>
#include <string.h>

static volatile sig_atomic_t came; /* the last signal that came; 0: none */

static void note_signal(int number)
{
	came = number;
}

void interrupt_catch(void)
{
	static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
	struct sigaction action = {.sa_handler = note_signal};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		sigaction(numbers[i], &action, NULL);
	}
}

int interrupt_signal(void)
{
	return came;
}

static bool has_come(void *user)
{
	return came != 0;
}

const struct tags_stop interrupt_stop = {has_come, NULL};

int interrupt_check(struct pawl_err *err)
{
	return came == 0 ? 0
			 : pawl_err_set(err, PAWL_ECANCELED, "stopped by signal %d (%s)", came,
				   strsignal(came));
}
