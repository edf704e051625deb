/* See run_devices.h. */
#include "launch/run_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VARIABLE  "CUDA_VISIBLE_DEVICES="
#define BYTES_MAX 4096u /* bytes of the variable, terminator included */

void run_devices_put(struct wire_out *set)
{
	char text[BYTES_MAX] = VARIABLE;
	const size_t prefix_bytes = sizeof(VARIABLE) - 1;
	const char *path = getenv(RUN_DEVICES_VAR);
	FILE *file = path ? fopen(path, "re") : NULL;

	if (file && fgets(text + prefix_bytes, (int)(sizeof(text) - prefix_bytes), file)) {
		text[strcspn(text, "\n")] = '\0';
		wire_put_raw(set, text, strlen(text) + 1);
	}
	if (file) {
		fclose(file);
	}
}
